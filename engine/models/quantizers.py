"""Quantise weights as they arrive, by bitsandbytes' layers and packed experts.

8bit is LLM.int8(), nf4 is QLoRA's 4 bits with double quantisation. bitsandbytes reaches linear layers; the experts of a
layer arrive together and are packed one by one (`experts.py`). transformers asks for the package accelerate here, to
spread a model over several devices. There is one device, so these quantizers do not ask for it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers import BitsAndBytesConfig, PreTrainedModel
from transformers.core_model_loading import ConversionOps
from transformers.quantizers.auto import register_quantization_config, register_quantizer
from transformers.quantizers.base import HfQuantizer
from transformers.quantizers.quantizer_bnb_4bit import Bnb4BitHfQuantizer
from transformers.quantizers.quantizer_bnb_8bit import Bnb8BitHfQuantizer
from transformers.quantizers.quantizers_utils import get_module_from_name
from transformers.utils.quantization_config import QuantizationConfigMixin

from engine.models import architectures
from engine.models.expert_packing import MXFP4, PACKINGS
from engine.models.experts import PackedExperts, pack_experts
from engine.models.file_layers import keep_in_file
from engine.models.gguf.kept import Kept
from engine.models.quantised import OWN


def quantization_for(quantize: str, place: torch.device, dtype: torch.dtype) -> BitsAndBytesConfig:
    """Return the configuration of `8bit` or `nf4` for transformers. dtype: that activations are computed in."""
    quieten_bitsandbytes()
    return _EightBit(place) if quantize == "8bit" else _NF4(place, dtype)


def quieten_bitsandbytes() -> None:
    """Silence two warnings of bitsandbytes that are no cause for concern.

    It says in every layer and pass that 8-bit products take float16 inputs, and on some CPUs that it misses the package
    `kernels`, which is of use only for the path that `unpack_as_computed` turns off.
    """
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)


def unpack_as_computed(network: nn.Module) -> None:
    """Make 4-bit layers multiply in the dtype of the activations on every CPU.

    At its first pass on a CPU with AVX-512 BF16, bitsandbytes would repack a layer for products in bfloat16. Its scales
    would take more bytes than planned, and it fails where the rows are no multiple of 32.
    """
    layer: Any
    for layer in network.modules():
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False


@register_quantization_config(f"{OWN}8bit")
class _EightBit(BitsAndBytesConfig):
    """Configures eight bits a weight, one scale a row."""

    def __init__(self, place: torch.device) -> None:
        super().__init__(load_in_8bit=True)  # type: ignore[no-untyped-call]
        self.quant_method: Any = f"{OWN}8bit"
        self.place = str(place)


@register_quantization_config(f"{OWN}nf4")
class _NF4(BitsAndBytesConfig):
    """Configures four bits a weight, unpacked to the dtype of the activations."""

    def __init__(self, place: torch.device, dtype: torch.dtype) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
        )
        self.quant_method: Any = f"{OWN}nf4"
        self.place = str(place)


@register_quantization_config(f"{OWN}mxfp4")
class PublishedMXFP4(QuantizationConfigMixin):
    """Keeps experts as published; transformers' own way needs a package of the same name as our folder `kernels`."""

    def __init__(self, place: torch.device) -> None:
        super().__init__(quant_method=f"{OWN}mxfp4")  # type: ignore[arg-type]
        self.place = str(place)


@register_quantization_config(f"{OWN}file")
class KeptInFile(QuantizationConfigMixin):
    """Leaves weights in their GGUF file."""

    def __init__(self, weights: Mapping[str, Kept], dtype: torch.dtype) -> None:
        """Take the weights by the names of the layers (`file_layers.py`)."""
        super().__init__(quant_method=f"{OWN}file")  # type: ignore[arg-type]
        self.place, self.weights, self.dtype = "cpu", weights, dtype


class _OnePlace:
    """Puts the whole model on one device."""

    quantization_config: Any

    def update_device_map(self, device_map: object) -> dict[str, torch.device]:
        """Return the device of the configuration, for all modules."""
        return {"": torch.device(self.quantization_config.place)}


class _Kept(_OnePlace, HfQuantizer):
    """Replaces modules by others that hold weights as they are."""

    def is_serializable(self) -> bool:
        """Return False: such a network is never saved."""
        return False

    @property
    def is_trainable(self) -> bool:
        """Return False: it is never trained."""
        return False


@register_quantizer(f"{OWN}mxfp4")
class _MXFP4Quantizer(_Kept):
    """Replaces experts by modules that hold the tensors of the checkpoint as they are."""

    def preprocess_model(self, model: PreTrainedModel, dtype: Any = None, **kwargs: Any) -> None:
        """Replace the experts, and nothing else."""
        super().preprocess_model(model, dtype, **kwargs)
        pack_experts(model, MXFP4)


@register_quantizer(f"{OWN}file")
class _FileQuantizer(_Kept):
    """Replaces linear layers and embeddings by layers that read the file."""

    def preprocess_model(self, model: PreTrainedModel, dtype: Any = None, **kwargs: Any) -> None:
        """Replace layers, and forget which weights are tied to theirs."""
        super().preprocess_model(model, dtype, **kwargs)
        weights = self.quantization_config.weights
        keep_in_file(model, weights, self.quantization_config.dtype)
        tied = model.all_tied_weights_keys
        model.all_tied_weights_keys = {
            name: other for name, other in tied.items() if name.rpartition(".")[0] not in weights
        }


class _PackExperts(ConversionOps):
    """Packs experts as their weights arrive, and leaves linear layers to bitsandbytes."""

    def __init__(self, linear: ConversionOps) -> None:
        self.linear = linear

    def convert(self, input_dict: dict[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return tensors by their paths in the network, without experts whose number or size is wrong."""
        packed = {}
        for path in list(input_dict):
            module, name = get_module_from_name(kwargs["model"], path)
            if isinstance(module, PackedExperts):
                found = input_dict.pop(path)
                weights = found[0] if isinstance(found, list) else found
                if module.takes(name, weights):
                    packed[path] = module.pack(name, weights)
        return packed | self.linear.convert(input_dict, *args, **kwargs)


class _Ours(_OnePlace):
    """Quantises weights on the device where they stay, experts too."""

    quantization: str

    def validate_environment(self, *args: object, **kwargs: object) -> None:
        """Do nothing: `load_network` has looked for bitsandbytes."""

    def get_modules_to_not_convert(self, model: PreTrainedModel, *args: Any, **kwargs: Any) -> list[str]:
        """Return the names of the head and of the layers that the architecture leaves unquantised."""
        own: list[str] = super().get_modules_to_not_convert(model, *args, **kwargs)  # type: ignore[misc]
        return [*own, *architectures.architecture_of(model.config).unquantised]

    def preprocess_model(self, model: PreTrainedModel, dtype: Any = None, **kwargs: Any) -> None:
        """Replace linear layers and experts by modules that hold codes."""
        super().preprocess_model(model, dtype, **kwargs)  # type: ignore[misc]
        pack_experts(model, PACKINGS[self.quantization])

    def param_needs_quantization(self, model: PreTrainedModel, param_name: str, **kwargs: Any) -> bool:
        """Return whether a parameter is a weight of experts or of one of bitsandbytes' layers."""
        module, name = get_module_from_name(model, param_name)
        ours = isinstance(module, PackedExperts) and name in module.stacks
        return ours or super().param_needs_quantization(model, param_name, **kwargs)  # type: ignore[misc]

    def get_quantize_ops(self) -> ConversionOps:
        """Return the operation that quantises a weight."""
        return _PackExperts(super().get_quantize_ops())  # type: ignore[misc]


@register_quantizer(f"{OWN}8bit")
class _EightBitQuantizer(_Ours, Bnb8BitHfQuantizer):
    """Quantises by LLM.int8() (https://arxiv.org/abs/2208.07339)."""

    quantization = "8bit"


@register_quantizer(f"{OWN}nf4")
class _NF4Quantizer(_Ours, Bnb4BitHfQuantizer):
    """Quantises by QLoRA's NormalFloat (https://arxiv.org/abs/2305.14314)."""

    quantization = "nf4"
