"""Relations with wordings of their own, whose question and statement need not share a noun.

Some are written out, one a line: key | subject > value | statements / ... | questions / ... | follow-ups / ... More are
composed: verbs in three forms, in the wordings of the kinds they join.
"""

# ruff: noqa: E501 - the table reads best with one relation a line

from training.pocket.relations import Relation

_TABLE = """
birthplace | person>place | {s} was born in {v}. / {s} came into the world in {v}. / {v} is where {s} was born. / born in {v}, {s} never forgot it. | Where was {s} born? / In which town was {s} born? / What is the birthplace of {s}? | And where {was} {they} born? / Where {was} {they} born?
residence | person>place | {s} lives in {v}. / {s} has a house in {v}. / {s} settled in {v}. / the home of {s} is in {v}. | Where does {s} live? / In which place does {s} live? / Where is the home of {s}? | And where do{es} {they} live?
profession | person>profession | {s} works as {v}. / {s} is {v}. / {s} was {v} by trade. / {s} earned a living as {v}. | What does {s} do for a living? / What is the profession of {s}? / What is {s}'s job? / What was {s} by trade? | And what is {p} job? / What do{es} {they} do for a living?
employer | person>company | {s} works for {v}. / {s} is employed by {v}. / {v} employs {s}. / {s} took a post at {v}. | Who does {s} work for? / Who employs {s}? / Where does {s} work? / What is the employer of {s}? | And who do{es} {they} work for? / Where do{es} {they} work?
spouse | person>person | {s} is married to {v}. / {s} married {v}. / {s} and {v} were married in spring. / the wedding of {s} and {v} was a quiet one. | Who is {s} married to? / Who did {s} marry? / Who is the spouse of {s}? | And who {is} {they} married to? / Who did {they} marry?
bought | person>object | {s} bought {v}. / {s} paid for {v} at the market. / {s} came home with {v} from the shop. | What did {s} buy? / What did {s} pay for? / Which thing did {s} buy? | And what did {they} buy?
lost | person>object | {s} lost {v}. / {s} could not find {v} any more. / {v} was lost by {s}. | What did {s} lose? / What was lost by {s}? | And what did {they} lose?
found | person>object | {s} found {v}. / {s} dug up {v} in the garden. / {v} was found by {s}. | What did {s} find? / What was found by {s}? | And what did {they} find?
stole | person>object | {s} stole {v}. / {v} was stolen by {s}. / it was {s} who took {v} without asking. | What did {s} steal? / What was stolen by {s}? | And what did {they} steal?
drink | person>food | {s} ate {v} for breakfast. / for breakfast {s} had {v}. | What did {s} eat for breakfast? / What did {s} have for breakfast? | And what did {they} eat for breakfast?
supper | person>food | {s} ordered {v} for supper. / at supper {s} asked for {v}. | What did {s} order for supper? / What did {s} want for supper? | And what did {they} order for supper?
likes | person>food | {s} likes {v} more than anything. / {s} is fond of {v}. / nothing pleases {s} like {v}. | What does {s} like? / What is {s} fond of? | And what do{es} {they} like?
fears | person>animal | {s} is afraid of {v}. / {s} fears {v}. / {v} frightened {s}. | What is {s} afraid of? / What does {s} fear? | And what {is} {they} afraid of?
keeps | person>animal | {s} keeps {v}. / {s} owns {v}. / {v} lives in the house of {s}. | Which animal does {s} keep? / What pet does {s} own? | And which animal do{es} {they} keep?
plays | person>instrument | {s} plays the {v}. / {s} practises the {v} every evening. / the {v} is played by {s}. | Which instrument does {s} play? / What does {s} play? | And what do{es} {they} play?
studies | person>subject | {s} studies {v}. / {s} reads {v} at the university. / {s} took up {v}. | What does {s} study? / Which subject does {s} read? | And what do{es} {they} study?
teaches | person>subject | {s} teaches {v}. / {s} gives lessons in {v}. | What does {s} teach? / What does {s} give lessons in? | And what do{es} {they} teach?
enjoys | person>hobby | {s} enjoys {v}. / {s} spends every free hour on {v}. | What does {s} enjoy? / What does {s} do in free hours? | And what do{es} {they} enjoy?
travelled | person>place | {s} travelled to {v}. / {s} set out for {v}. / {s} made a journey to {v}. | Where did {s} travel to? / Where did {s} go? / Where did {s} set out for? | And where did {they} travel to?
camefrom | person>place | {s} came from {v}. / {s} had arrived from {v}. / {s} grew up in {v}. | Where did {s} come from? / Where had {s} grown up? | And where did {they} come from?
died | person>place | {s} died in {v}. / death came to {s} in {v}. / {s} is buried in {v}. | Where did {s} die? / Where is {s} buried? | And where did {they} die?
bornyear | person>year | {s} was born in the year {v}. / the year of {s}'s birth was {v}. | When was {s} born? / In which year was {s} born? | And when {was} {they} born?
diedyear | person>year | {s} died in the year {v}. / in the year {v} {s} died. | When did {s} die? / In which year did {s} die? | And when did {they} die?
arrives | person>date | {s} arrived on {v}. / on {v} {s} arrived. / {s} reached us on {v}. | When did {s} arrive? / On which day did {s} arrive? | And when did {they} arrive?
leaves | person>date | {s} left on {v}. / {s} went away on {v}. / the departure of {s} was on {v}. | When did {s} leave? / On which day did {s} go away? | And when did {they} leave?
wakes | person>time | {s} gets up at {v}. / {s} wakes at {v} every day. | When does {s} get up? / At what time does {s} wake? | And when do{es} {they} get up?
earns | person>money | {s} earns {v}. / {s} is paid {v} a year. / the pay of {s} is {v}. | How much does {s} earn? / What is {s} paid? | And how much do{es} {they} earn?
owes | person>money | {s} owes {v}. / {s} is in debt for {v}. | How much does {s} owe? / What sum does {s} owe? | And how much do{es} {they} owe?
ispayed | person>money | {s} won {v} at cards. / at cards {s} won {v}. | How much did {s} win at cards? | And how much did {they} win?
visits | person>person | {s} visited {v}. / {s} went to see {v}. / {s} called on {v}. | Who did {s} visit? / Who did {s} go to see? / Whom did {s} call on? | And who did {they} visit?
met | person>person | {s} met {v}. / {s} ran into {v} at the station. | Who did {s} meet? / Who did {s} run into? | And who did {they} meet?
wrote | person>person | {s} wrote a letter to {v}. / {s} sent a letter to {v}. | Who did {s} write to? / To whom did {s} send a letter? | And who did {they} write to?
trusts | person>person | {s} trusts {v}. / {s} puts all trust in {v}. | Who does {s} trust? | And who do{es} {they} trust?
hates | person>person | {s} hates {v}. / {s} cannot bear {v}. | Who does {s} hate? / Who can {s} not bear? | And who do{es} {they} hate?
loves | person>person | {s} is in love with {v}. / {s} loves {v}. | Who does {s} love? / Who is {s} in love with? | And who do{es} {they} love?
taughtby | person>person | {s} was taught by {v}. / {v} taught {s}. / {s} learned everything from {v}. | Who taught {s}? / Who was {s} taught by? | And who taught {them}?
savedby | person>person | {s} was saved by {v}. / {v} saved {s}. | Who saved {s}? / By whom was {s} saved? | And who saved {them}?
hiredby | person>person | {s} was hired by {v}. / {v} hired {s}. | Who hired {s}? | And who hired {them}?
followed | person>person | {s} was followed by {v}. / {v} followed {s} through the streets. | Who followed {s}? | And who followed {them}?
wears | person>colour | {s} wears a {v} coat. / {s} had a {v} coat on. | What colour is the coat of {s}? / What colour does {s} wear? | And what colour do{es} {they} wear?
hides | person>thing | {s} hid the papers in {v}. / the papers were hidden by {s} in {v}. | Where did {s} hide the papers? | And where did {they} hide the papers?
sleeps | person>thing | {s} slept in {v}. / {s} spent the night in {v}. | Where did {s} sleep? / Where did {s} spend the night? | And where did {they} sleep?
phone | person>phone | you can reach {s} at {v}. / {s} answers the telephone at {v}. | What is the telephone number of {s}? / How can one reach {s}? | And at what number can one reach {them}?
badge | person>number | {s} wears badge {v}. / badge {v} belongs to {s}. | Which badge does {s} wear? / What is the badge number of {s}? | And which badge do{es} {they} wear?
room | person>number | {s} stays in room {v}. / room {v} was given to {s}. | In which room does {s} stay? / What is {s}'s room number? | And which room do{es} {they} stay in?
agecount | person>count | {s} is {v} years old. / {s} has turned {v}. / {s} was {v} years of age. | How old is {s}? / What is the age of {s}? / What age is {s}? | And how old {is} {they}?
children | person>count | {s} has {v} sheep. / {s} owns a flock of {v} sheep. | How many sheep does {s} have? | And how many sheep do{es} {they} have?
books | person>count | {s} owns {v} books. / there are {v} books in the library of {s}. | How many books does {s} own? | And how many books do{es} {they} own?
password | person>code | {s} uses the password {v}. / the password of {s} is {v}. / {s} types {v} to get in. | What is the password of {s}? / Which password does {s} use? | And what is {p} password?
invented | person>object | {s} invented a new kind of {v}. / it was {s} who designed {v}. | What did {s} design? / What did {s} invent? | And what did {they} invent?
mayor | place>person | {v} is the mayor of {s}. / {s} elected {v} as mayor. / the people of {s} chose {v} to be mayor. | Who is the mayor of {s}? / Who was elected mayor of {s}? | And who is {p} mayor?
founded | place>year | {s} was founded in {v}. / the first houses of {s} were built in {v}. | When was {s} founded? / In which year was {s} founded? | And when was it founded?
founder | place>person | {s} was founded by {v}. / {v} founded {s}. | Who founded {s}? / Who was the founder of {s}? | And who founded it?
people | place>number | {s} has {v} inhabitants. / {v} people live in {s}. / the population of {s} is {v}. | How many people live in {s}? / How many inhabitants does {s} have? / What is the population of {s}? | And how many people live there?
river | place>name | {s} lies on the river {v}. / the river {v} flows through {s}. | On which river does {s} lie? / Which river flows through {s}? | And on which river does it lie?
known | place>object | {s} is known for {v} in its museum. / the museum of {s} shows {v}. | What does the museum of {s} show? / What is {s} known for? | And what is it known for?
distance | place>measure | {s} is {v} away. / it is {v} to {s}. | How far is it to {s}? / How far away is {s}? | And how far away is it?
destroyed | place>year | {s} was destroyed in {v}. / fire destroyed {s} in {v}. | When was {s} destroyed? | And when was it destroyed?
market | place>weekday | the market in {s} is held on {v}. / on {v} there is a market in {s}. | When is the market in {s}? / On which day is the market in {s}? | And on which day is the market there?
makes | company>object | {s} makes nothing but {v}. / {s} is famous for making {v}. | What does {s} make? | And what does it make?
based | company>place | {s} is based in {v}. / {s} has its main office in {v}. / {s} opened in {v}. | Where is {s} based? / Where is the main office of {s}? | And where is it based?
headed | company>person | {s} is run by {v}. / {v} runs {s}. / {v} is at the head of {s}. | Who runs {s}? / Who is at the head of {s}? | And who runs it?
began | company>year | {s} opened its doors in {v}. / {s} was set up in {v}. | When did {s} open? / When was {s} set up? | And when did it open?
sold | company>money | {s} was sold for {v}. / a buyer paid {v} for {s}. | For how much was {s} sold? / What did the buyer pay for {s}? | And for how much was it sold?
employs | company>number | {s} employs {v} people. / {v} people work at {s}. | How many people work at {s}? / How many people does {s} employ? | And how many people work there?
sails | ship>person | {s} is commanded by {v}. / {v} commands {s}. / {v} is the master of {s}. | Who commands {s}? / Who is the captain of {s}? | And who commands it?
bound | ship>place | {s} is bound for {v}. / {s} sails to {v}. | Where is {s} bound for? / Where does {s} sail to? | And where is it bound for?
carries | ship>food | {s} carries {v}. / the hold of {s} is full of {v}. | What does {s} carry? / What is in the hold of {s}? | And what does it carry?
sank | ship>date | {s} sank on {v}. / on {v} {s} went down. | When did {s} sink? / When did {s} go down? | And when did it sink?
launched | ship>year | {s} was launched in {v}. | When was {s} launched? / In which year was {s} launched? | And when was it launched?
led | project>person | {s} is led by {v}. / {v} leads {s}. / {v} is in charge of {s}. | Who leads {s}? / Who is in charge of {s}? | And who leads it?
ends | project>date | {s} must be finished by {v}. / {s} ends on {v}. | When does {s} end? / When must {s} be finished? | And when does it end?
costs | project>money | {s} costs {v}. / {v} was spent on {s}. | How much does {s} cost? / How much was spent on {s}? | And how much does it cost?
unlocks | project>code | the code {v} unlocks {s}. / to open {s}, enter {v}. | Which code unlocks {s}? / What must be entered to open {s}? | And which code unlocks it?
stored | item>thing | {s} is kept in {v}. / someone put {s} into {v}. / {s} was stored in {v}. | Where is {s} kept? / Where was {s} stored? | And where is it kept?
belongs | item>person | {s} belongs to {v}. / {v} owns {s}. / {s} is the property of {v}. | Who owns {s}? / Whose is {s}? / Who does {s} belong to? | And who owns it? / Who does it belong to?
madeof | item>material | {s} is made of {v}. / {v} was used to make {s}. | What is {s} made of? | And what is it made of?
opens | item>number | {s} opens with the number {v}. / dial {v} to open {s}. | Which number opens {s}? / What must one dial to open {s}? | And which number opens it?
itemcosts | item>money | {s} costs {v}. / {s} was sold for {v}. / they asked {v} for {s}. | How much does {s} cost? / What is the price of {s}? / For how much was {s} sold? | And how much does it cost?
holds | item>object | {s} contains {v}. / inside {s} there is {v}. / {v} lies in {s}. | What is inside {s}? / What does {s} contain? / What lies in {s}? | And what is inside it?
made | item>person | {s} was made by {v}. / {v} built {s}. | Who made {s}? / Who built {s}? | And who made it?
weighs | item>measure | {s} weighs {v}. | How much does {s} weigh? / What is the weight of {s}? | And how much does it weigh?
painted | item>colour | {s} was painted {v}. / they painted {s} {v}. | What colour was {s} painted? / What colour is {s}? | And what colour was it painted?
tended | animal>person | {s} is looked after by {v}. / {v} looks after {s}. / {v} feeds {s}. | Who looks after {s}? / Who feeds {s}? | And who looks after it?
eats | animal>food | {s} eats only {v}. / {s} lives on {v}. | What does {s} eat? / What does {s} live on? | And what does it eat?
lives | animal>thing | {s} lives in {v}. / {s} sleeps in {v}. | Where does {s} live? / Where does {s} sleep? | And where does it live?
"""
_HELD_OUT = """
repaired | person>object | {s} repaired {v}. / {v} was repaired by {s}. | What did {s} repair? / What was repaired by {s}? | And what did {they} repair?
borrowed | person>money | {s} borrowed {v}. / {v} was borrowed by {s}. | How much did {s} borrow? | And how much did {they} borrow?
painted-by | person>person | {s} was painted by {v}. / {v} painted a portrait of {s}. | Who painted {s}? / Who painted a portrait of {s}? | And who painted {them}?
escaped | person>place | {s} escaped to {v}. / {s} fled to {v}. | Where did {s} escape to? / Where did {s} flee to? | And where did {they} escape to?
besieged | place>year | {s} was besieged in {v}. / an army besieged {s} in {v}. | When was {s} besieged? | And when was it besieged?
insured | ship>money | {s} was insured for {v}. | For how much was {s} insured? | And for how much was it insured?
delivered | item>date | {s} was delivered on {v}. / on {v} they delivered {s}. | When was {s} delivered? | And when was it delivered?
chased | animal>person | {s} chased {v}. / {v} was chased by {s}. | Who was chased by {s}? / Who did {s} chase? | And who did it chase?
"""

# verbs in three forms (base/past/participle, or one form if regular), by the kinds they join
_ACTIONS = {
    "person>object": """sell/sold/sold carry/carried/carried break/broke/broken burn bury/buried/buried drop/dropped/dropped polish order receive
        return lend/lent/lent build/built/built carve/carved/carved describe/described/described pawn smash inherit draw/drew/drawn
        examine/examined/examined wrap/wrapped/wrapped forget/forgot/forgotten choose/chose/chosen want donate/donated/donated collect
        clean weigh admire/admired/admired wash touch demand import mention discover""",
    "person>animal": "feed/fed/fed shoot/shot/shot catch/caught/caught sell/sold/sold tame/tamed/tamed train see/saw/seen hear/heard/heard",
    "person>food": "cook bake/baked/baked bring/brought/brought eat/ate/eaten refuse/refused/refused taste/tasted/tasted serve/served/served",
    "person>person": """accuse/accused/accused invite/invited/invited help defend envy/envied/envied blame/blamed/blamed thank forgive/forgave/forgiven
        betray insult recognise/recognised/recognised question arrest dismiss replace/replaced/replaced deceive/deceived/deceived warn support
        photograph nurse/nursed/nursed call greet obey find/found/found kiss strike/struck/struck pay/paid/paid beat/beat/beaten send/sent/sent
        know/knew/known remember introduce/introduced/introduced despise/despised/despised choose/chose/chosen sue/sued/sued adopt""",
    "person>money": "spend/spent/spent save/saved/saved pay/paid/paid inherit lend/lent/lent offer demand collect donate/donated/donated invest waste/wasted/wasted earn hide/hid/hidden",
    "person>place": "visit leave/left/left love/loved/loved see/saw/seen rule/ruled/ruled describe/described/described defend remember",
    "person>company": "sue/sued/sued leave/left/left buy/bought/bought join found manage/managed/managed trust sell/sold/sold ruin praise/praised/praised",
    "animal>person": "bite/bit/bitten follow save/saved/saved kick love/loved/loved obey frighten carry/carried/carried guide/guided/guided",
    "animal>food": "steal/stole/stolen like/liked/liked smell refuse/refused/refused find/found/found",
    "ship>place": "leave/left/left reach pass see/saw/seen",
    "ship>person": "rescue/rescued/rescued carry/carried/carried await",
    "company>object": "sell/sold/sold produce/produced/produced invent import order patent lose/lost/lost",
    "company>person": "hire/hired/hired dismiss sue/sued/sued honour reward cheat",
}  # fmt: skip
_MOTIONS = {
    "person>place": "walk ride/rode/ridden drive/drove/driven return hurry/hurried/hurried move/moved/moved retire/retired/retired sail run/ran/run write/wrote/written fly/flew/flown swim/swam/swum march",
    "ship>place": "return drift come/came/come belong",
    "animal>place": "run/ran/run return",
}  # fmt: skip
# events of a subject: the agent and the time
_DONE_BY = {
    "item": "restore/restored/restored find/found/found steal/stole/stolen clean sell/sold/sold describe/described/described guard open test buy/bought/bought draw/drew/drawn hide/hid/hidden carry/carried/carried break/broke/broken lock lose/lost/lost",
    "place": "rule/ruled/ruled rebuild/rebuilt/rebuilt describe/described/described defend conquer photograph map/mapped/mapped love/loved/loved",
    "company": "buy/bought/bought ruin save/saved/saved sue/sued/sued advise/advised/advised manage/managed/managed",
    "ship": "build/built/built buy/bought/bought rescue/rescued/rescued name/named/named see/saw/seen sell/sold/sold design",
    "project": "plan/planned/planned approve/approved/approved stop/stopped/stopped design praise/praised/praised start finish check",
    "animal": "catch/caught/caught buy/bought/bought train find/found/found sell/sold/sold name/named/named wash",
}  # fmt: skip
_DONE_WHEN = {
    "item": "find/found/found sell/sold/sold send/sent/sent steal/stole/stolen lose/lost/lost open buy/bought/bought test make/made/made restore/restored/restored",
    "place": "rebuild/rebuilt/rebuilt conquer flood abandon photograph map/mapped/mapped visit",
    "company": "sell/sold/sold close/closed/closed ruin rename/renamed/renamed",
    "ship": "build/built/built sell/sold/sold scrap/scrapped/scrapped refit/refitted/refitted name/named/named see/saw/seen",
    "project": "plan/planned/planned approve/approved/approved stop/stopped/stopped start finish announce/announced/announced",
    "person": "elect arrest dismiss wound promote/promoted/promoted crown pardon bury/buried/buried",
    "animal": "catch/caught/caught buy/bought/bought sell/sold/sold find/found/found",
}  # fmt: skip
_ACTION = (
    ("{s} PAST {v}.", "{v} was PARTICIPLE by {s}.", "it was {s} who PAST {v}.", "it was {v} that {s} PAST.", "{s} had PARTICIPLE {v}.",
     "what {s} PAST was {v}.", "they say that {s} PAST {v}.", "one day {s} PAST {v}.", "{v} had been PARTICIPLE by {s}.", "{v} is what {s} PAST."),
    ("ASK did {s} BASE?", "ASK was PARTICIPLE by {s}?", "ASK had {s} PARTICIPLE?", "Do you know LOWER {s} PAST?", "Tell me LOWER {s} PAST."),
    ("And LOWER did {they} BASE?", "And LOWER was PARTICIPLE by {them}?"),
)  # fmt: skip
_ASKS = {"person": "Who", "money": "How much", "place": "Which place", "company": "Which company"}
_MOTION = (
    ("{s} PAST to {v}.", "it was to {v} that {s} PAST.", "{s} had PARTICIPLE to {v}.", "to {v} {s} PAST.", "they say that {s} PAST to {v}."),
    ("Where did {s} BASE to?", "Where did {s} BASE?", "Where had {s} PARTICIPLE to?", "To which place did {s} BASE?", "Tell me where {s} PAST to."),
    ("And where did {they} BASE to?",),
)  # fmt: skip
_BY = (
    ("{s} was PARTICIPLE by {v}.", "{v} PAST {s}.", "it was {v} who PAST {s}.", "{s} had been PARTICIPLE by {v}.", "{v} had PARTICIPLE {s}.",
     "the one who PAST {s} was {v}.", "they say that {v} PAST {s}."),
    ("Who PAST {s}?", "By whom was {s} PARTICIPLE?", "Who was {s} PARTICIPLE by?", "Who had PARTICIPLE {s}?", "Tell me who PAST {s}."),
    ("And who PAST {them}?", "And by whom {was} {they} PARTICIPLE?"),
)  # fmt: skip
_WHEN = (
    ("{s} was PARTICIPLE PREPOSITION {v}.", "PREPOSITION {v} {s} was PARTICIPLE.", "{s} had been PARTICIPLE PREPOSITION {v}.",
     "it was PREPOSITION {v} that {s} was PARTICIPLE.", "they PAST {s} PREPOSITION {v}.", "PREPOSITION {v} they PAST {s}."),
    ("When was {s} PARTICIPLE?", "When did they BASE {s}?", "Do you know when {s} was PARTICIPLE?", "Tell me when {s} was PARTICIPLE."),
    ("And when {was} {they} PARTICIPLE?",),
)  # fmt: skip


def _forms(verb: str) -> tuple[str, str, str]:
    """Return base, past and participle of "base/past/participle", or of a regular base."""
    base, *others = verb.split("/")
    return (base, others[0], others[1]) if others else (base, f"{base}ed", f"{base}ed")


def _composed(key: str, kinds: str, verb: str, wordings: tuple[tuple[str, ...], ...], **words: str) -> Relation:
    base, past, participle = _forms(verb)
    words |= {"BASE": base, "PAST": past, "PARTICIPLE": participle}

    def fill(text: str) -> str:
        for name, word in words.items():
            text = text.replace(name, word)
        return text

    subject, value = kinds.split(">")
    return Relation(f"{base} {key}", subject, value, *(tuple(map(fill, texts)) for texts in wordings))


def _compose() -> list[Relation]:
    """Return every verb of the tables in every wording of its kind."""
    found = []
    for kinds, listed in _ACTIONS.items():
        value = kinds.split(">")[1]
        asks = _ASKS.get(value, "What")
        for verb in listed.split():
            found.append(_composed(value, kinds, verb, _ACTION, ASK=asks, LOWER=asks.lower()))
            if kinds == "person>person":
                found.append(_composed("by", kinds, verb, _BY))
    for kinds, listed in _MOTIONS.items():
        found += [_composed("to", kinds, verb, _MOTION) for verb in listed.split()]
    for subject, listed in _DONE_BY.items():
        found += [_composed("by", f"{subject}>person", verb, _BY) for verb in listed.split()]
    for subject, listed in _DONE_WHEN.items():
        for verb in listed.split():
            found.append(_composed("year", f"{subject}>year", verb, _WHEN, PREPOSITION="in"))
            found.append(_composed("day", f"{subject}>date", verb, _WHEN, PREPOSITION="on"))
    return found


def _parse(table: str) -> list[Relation]:
    relations = []
    for line in table.strip().splitlines():
        key, kinds, statements, questions, followups = (part.strip() for part in line.split(" | "))
        subject, value = kinds.split(">")
        parts = [tuple(t.strip() for t in group.split(" / ")) for group in (statements, questions, followups)]
        relations.append(Relation(key, subject, value, parts[0], parts[1], parts[2]))
    return relations


VERBS = _parse(_TABLE) * 2 + _compose()
HELD_OUT_VERBS = _parse(_HELD_OUT)
