"""Recognise answers that say that the text does not tell, so that no passage is shown as their source.

An answer about the text ("He did not find the key.") does not count: its subject is a person in the text. A wrong guess
costs little, because the passages are still there, folded.
"""

import re

from app.asking.quotes import sentences_around

LONGEST = 400  # characters; a longer answer says something else too

_GIVEN = r"(?:provided|given|above|supplied|available|present)"
_TEXTS = (
    r"(?:text|document|passage|book|paper|article|context|story|novel|report|file|chapter|excerpt|page|section|source|"
    r"material|content|information)s?"
)
_THE_TEXT = rf"(?:the|this|these|your|any of the) (?:{_GIVEN} )?{_TEXTS}(?: (?:you )?{_GIVEN})?"
_HOW = r"(?:(?:explicitly|directly|clearly|specifically|actually|really|even|exactly|ever|anywhere) )?"
_NOT = r"(?:(?:do|does|did|could|can|is|are|was|were|has|have)(?:n't| not)|cannot)"
_SAY = (
    r"(?:mention|say|state|provide|contain|specify|indicate|give|include|describe|discuss|explain|tell|name|reveal|"
    r"address|cover|offer|refer|have (?:any|enough))"
)
_SAID = r"(?:mentioned|stated|given|specified|provided|named|described|discussed|indicated|addressed|covered|found)"
_INFORMATION = r"(?:\w+ )?(?:information|mention|reference|answer|details)"
_UNABLE = r"(?:cannot|can't|could not|couldn't|am unable to|was unable to|am not able to)"
_ENGLISH = (
    # The text does not say ...
    rf"{_THE_TEXT} (?:do|does|did)(?:n't| not) (?!(?:only|just|merely)\b){_HOW}{_SAY}\b",
    rf"{_THE_TEXT} (?:contains?|provides?|gives?|has|have|makes?) no {_INFORMATION}\b",
    # I did not find that ...
    rf"(?:i|we) (?:{_NOT}|{_UNABLE})(?: been able to)? (?:find|see|locate)"
    rf"(?:$| (?:that|this|it|any\w*|an? {_INFORMATION}|the answer|(?:the |such )?information)\b)",
    rf"(?:i|we) (?:found|find|see|have) (?:nothing|no {_INFORMATION})\b",
    rf"(?:i|we) {_UNABLE} (?:answer|determine|tell|say)\b",
    r"(?:i|we) (?:do not|don't) (?:know(?: the answer| that| this)?$|have (?:any |enough |that |this )?information\b)",
    # There is nothing about ...
    rf"there (?:is|are|was|were)(?: no|(?:n't| not) (?:any|enough)) {_INFORMATION}\b",
    rf"(?:there is )?nothing (?:about|on|regarding) .{{1,80}} in {_THE_TEXT}",
    rf"no {_INFORMATION}(?:$| (?:is|are|was|were|of|about|on|regarding|found|given|provided)\b)",
    # That is not stated (in the text) ...
    rf"(?:.{{1,120}} )?(?:{_NOT}(?: been)?|not) {_HOW}{_SAID}(?: anywhere)? (?:in|by|within) {_THE_TEXT}",
    rf"(?:(?:that|this|it|the answer) (?:is|was)(?:n't| not) |not ){_HOW}{_SAID}$",
    rf"(?:(?:that|this|it|the answer|(?:the|this|that|such) information) (?:is|was)(?:n't| not) |not )"
    rf"(?:to be found )?(?:anywhere )?(?:in|part of) {_THE_TEXT}",
    r"it is (?:not possible|impossible) to (?:tell|say|determine|know|answer)\b",
    r".{1,120} (?:cannot|can't|could not) be (?:determined|answered|found|inferred) "
    rf"(?:from|in|by) {_THE_TEXT}",
)
_LE_TEXTE = r"(?:le|ce) (?:texte|document|livre|passage)"
_EL_TEXTO = r"(?:el|este) (?:texto|documento|libro|pasaje)"
_TEXT = r"(?:text|dokument|buch|artikel|kapitel|bericht|auszug|kontext)"
_NICHT = r".{0,80}\b(?:nicht|nichts|keine?n?)\b"
_OTHERS = (
    rf"(?:das|dies|es|davon|dazu|darüber) (?:steht|wird|ist) (?:\w+ )?(?:nicht|nichts) (?:im|in dem) {_TEXT}",
    r"(?:davon|dazu|darüber) (?:steht|sagt|findet sich) .{0,40}\bnichts\b",
    rf"(?:der|das|dieser|dieses) {_TEXT} (?:erwähnt|nennt|sagt|enthält|gibt|beschreibt|macht) {_NICHT}",
    rf"(?:im|in dem) {_TEXT} (?:steht|wird|werden|gibt es|findet sich|finden sich|ist) {_NICHT}",
    r"ich (?:habe|konnte) (?:das |dies |dazu |darüber )(?:\w+ )?(?:nicht|nichts) (?:gefunden|finden)$",
    r"ich (?:habe|konnte) (?:dazu |darüber )?keine (?:angaben?|informationen|antwort|hinweise)\b",
    r"es gibt (?:dazu |darüber |hier )?keine (?:angaben?|informationen|hinweise)\b",
    rf"(?:ce|cela|ça) n'est pas (?:dit |mentionné )?dans {_LE_TEXTE}",
    rf"{_LE_TEXTE} ne (?:le )?(?:mentionne|dit|précise|indique|fournit|contient|donne|parle)\b",
    r"je n'ai (?:pas|rien) trouvé(?:$| (?:cela|ça|d'information|de mention|de réponse))",
    r"il n'y a (?:pas d'|aucune )(?:information|mention|indication)",
    rf".{{1,120}} n'est pas (?:mentionnée?|précisée?|indiquée?) dans {_LE_TEXTE}",
    rf"(?:eso|esto|ello)? ?no (?:está|aparece|se menciona|se dice|se indica) en {_EL_TEXTO}",
    rf"{_EL_TEXTO} no (?:lo )?(?:menciona|dice|indica|proporciona|contiene|especifica|da|ofrece)\b",
    r"no (?:he encontrado|encontré|encuentro)(?:$| (?:eso|esto|nada|información|ninguna|la respuesta))",
    r"no hay (?:ninguna )?(?:información|mención|referencia)",
    r".{0,20}(?:文中|文本|文章|书中|原文|文档|资料|上下文)[里中内]?[并也]?(?:没有|未)(?:明确)?"
    r"(?:提到|提及|说明|给出|包含|提供|找到|写|说)",
    r"我?(?:没有|未能?|没)找到(?:相关|答案|关于|这|$)",
    r"(?:没有|无)(?:关于.{1,40}的|相关)?(?:信息|内容)$",
    r"(?:这|该信息|答案)并?不在(?:文中|文本|文章|书|原文|文档)",
    r".{0,60}(?:文章|テキスト|文書|資料|文中|本).{0,40}(?:記載|言及|記述|情報|書かれて|述べられて).{0,12}"
    r"(?:ありません|ない|いません|おりません)",
    r".{0,40}見つかりません(?:でした)?$",
)
_NONE = (
    "none",
    "nothing",
    "n/a",
    "keine",
    "nichts",
    "aucun",
    "aucune",
    "rien",
    "ninguno",
    "ninguna",
    "nada",
    "なし",
    "无",
    "unknown",
    "not available",
)
_SAYS_SO = re.compile("|".join(f"(?:{each})" for each in (*_ENGLISH, *_OTHERS)), re.IGNORECASE)
_BEFORE = re.compile(
    r"(?:(?:sorry|i'm sorry|i am sorry|i apologi[sz]e|unfortunately|no|leider|nein|désolée?|malheureusement|lo siento|"
    r"lamentablemente|抱歉|很抱歉|对不起|申し訳ありませんが)[,.;:!，、。]\s*(?:(?:but|aber|mais|pero)\s+)?"
    rf"|(?:based on|according to|from|in|given) {_THE_TEXT}, )+",
    re.IGNORECASE,
)
_SIGN = re.compile(r"^(?:[-*•]\s*|answer:\s*)+", re.IGNORECASE)
_MORE = re.compile(
    r"\b(?:but|however|although|though|instead|nevertheless|aber|jedoch|mais|cependant|pero|sin embargo)\b"
    r"|但|不过|しかし|ただし",
    re.IGNORECASE,
)


def says_not_found(answer: str) -> bool:
    """Return whether an answer only says that nothing was found, or that the text does not tell."""
    said = " ".join(answer.replace("’", "'").replace("*", "").split())
    said = said[before.end() :] if (before := _BEFORE.match(said)) else said
    if not said or len(said) > LONGEST or _MORE.search(said):
        return False
    first = sentences_around(said, 0, 1)
    return _SAYS_SO.match(said[first.start : first.end].rstrip(".!。！ ")) is not None


def is_no_value(value: str) -> bool:
    """Return whether a short answer, or an item of a list, only begins with it that the text does not tell, or says
    "none".
    """
    said = _SIGN.sub("", value.strip())
    return said.casefold().strip(" .") in _NONE or says_not_found(_MORE.split(said)[0].strip(" ,;"))
