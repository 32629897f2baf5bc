"""The language of the task: what is said, and what it means. Data only.

An intent has heads, one of which is said, and options, any of which may follow in any
order (or, one of them, come before). A slot is one of its phrases. In a text

    {SLOT}      is a slot, <words> one word of a list of words, and
    (INTENT)    an intent inside a slot, as the whole phrase; only its head is said.

Every word that is said is copied into the parse, where it stands; brackets say what it
means. A new intent, slot or list of words is a line here, and nothing elsewhere.
"""

DEEPEST = 3  # intents inside each other
BEFORE = ("please", "hey", "okay", "now")  # or nothing, before anything else
AFTER = ("please", "thanks")  # or nothing, at the end

# intent -> (heads, options)
INTENTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "CREATE_REMINDER": (
        (
            "remind {PERSON_REMINDED} to {TODO}",
            "set a reminder for {PERSON_REMINDED} to {TODO}",
            "do not let {PERSON_REMINDED} forget to {TODO}",
            "{PERSON_REMINDED} must remember to {TODO}",
        ),
        ("{DATE_TIME}", "{RECURRING}", "with {PRIORITY} priority"),
    ),
    "DELETE_REMINDER": (
        (
            "delete the reminder to {TODO}",
            "cancel my reminder to {TODO}",
            "forget the reminder of {PERSON_REMINDED} to {TODO}",
        ),
        ("{DATE_TIME}", "{RECURRING}"),
    ),
    "SEND_MESSAGE": (
        (
            "text {RECIPIENT} that {CONTENT}",
            "tell {RECIPIENT} that {CONTENT}",
            "send {RECIPIENT} a message saying {CONTENT}",
            "let {RECIPIENT} know that {CONTENT}",
        ),
        ("on {APP}", "{DATE_TIME}"),
    ),
    "GET_MESSAGE": (
        (
            "read the {ORDINAL} message from {SENDER}",
            "show me messages from {SENDER}",
            "did {SENDER} write to me about {TOPIC}",
        ),
        ("on {APP}", "{DATE_TIME}"),
    ),
    "CREATE_CALL": (
        (
            "call {CONTACT}",
            "phone {CONTACT} on the {PHONE_TYPE} number",
            "start a call with {CONTACT}",
        ),
        ("{DATE_TIME}", "on {APP}"),
    ),
    "CREATE_ALARM": (
        (
            "wake {PERSON_REMINDED} up {DATE_TIME}",
            "set an alarm called {ALARM_NAME}",
            "set an alarm {DATE_TIME}",
        ),
        ("{RECURRING}", "in the {ROOM}"),
    ),
    "CREATE_TIMER": (
        (
            "start a timer for {DURATION}",
            "count down {DURATION}",
            "start a {TIMER_NAME} timer for {DURATION}",
        ),
        ("in the {ROOM}", "with {PRIORITY} priority"),
    ),
    "PLAY_MUSIC": (
        (
            "play {TRACK} by {ARTIST}",
            "play some {GENRE} music",
            "put on the song {TRACK}",
            "play my {PLAYLIST} playlist",
        ),
        ("in the {ROOM}", "on {APP}", "for {DURATION}"),
    ),
    "ADD_TO_PLAYLIST": (
        (
            "add {TRACK} by {ARTIST} to {PLAYLIST}",
            "save the song {TRACK} in my {PLAYLIST} list",
        ),
        ("on {APP}", "with {PRIORITY} priority"),
    ),
    "GET_WEATHER": (
        (
            "what is the weather in {LOCATION}",
            "will there be {WEATHER} in {LOCATION}",
            "how much {WEATHER} is expected at {LOCATION}",
        ),
        ("{DATE_TIME}", "in {UNIT}"),
    ),
    "GET_DIRECTIONS": (
        (
            "get directions to {DESTINATION}",
            "how do i get to {DESTINATION}",
            "show me the way to {DESTINATION}",
            "navigate to {DESTINATION}",
        ),
        ("from {SOURCE}", "by {TRAVEL}", "avoiding {OBSTACLE}", "{DATE_TIME}"),
    ),
    "GET_ARRIVAL": (
        (
            "when will i arrive at {DESTINATION}",
            "how long is the trip to {DESTINATION}",
        ),
        ("from {SOURCE}", "by {TRAVEL}", "avoiding {OBSTACLE}"),
    ),
    "GET_EVENT": (
        (
            "the {EVENT_NAME} {EVENT_KIND}",
            "the {EVENT_KIND} of {EVENT_NAME}",
            "the {ORDINAL} {EVENT_KIND}",
        ),
        ("in {LOCATION}", "{DATE_TIME}"),
    ),
    "GET_PLACE": (
        (
            "the nearest {PLACE_KIND}",
            "the {PLACE_KIND} near {LOCATION}",
            "the {PLACE_KIND} of {CONTACT}",
        ),
        ("open {DATE_TIME}", "within {DURATION}"),
    ),
    "GET_CONTACT": (
        (
            "my {RELATION}",
            "the {RELATION} of {CONTACT}",
        ),
        ("in {LOCATION}",),
    ),
    "ORDER_FOOD": (
        (
            "order {QUANTITY} {DISH} from {RESTAURANT}",
            "get me {QUANTITY} {DISH}",
            "i would like {DISH} from {RESTAURANT}",
        ),
        ("{DATE_TIME}", "for {RECIPIENT}", "to the {ROOM}"),
    ),
    "SET_TEMPERATURE": (
        (
            "set the {ROOM} to {DEGREES}",
            "make the {ROOM} {DEGREES} warm",
        ),
        ("{DATE_TIME}", "for {DURATION}", "{RECURRING}"),
    ),
    "GET_NEWS": (
        (
            "what is the news about {TOPIC}",
            "give me headlines on {TOPIC}",
        ),
        ("from {LOCATION}", "{DATE_TIME}", "on {APP}"),
    ),
}

# slot -> phrases
SLOTS: dict[str, tuple[str, ...]] = {
    "PERSON_REMINDED": ("me", "me", "us", "<person>", "(GET_CONTACT)"),
    "TODO": (
        "<do> the <thing>",
        "<do> my <quality> <thing>",
        "<do> the <thing> and the <thing>",
        "<do> <person> <quality> <thing>",
        "(SEND_MESSAGE)",
        "(CREATE_CALL)",
        "(ORDER_FOOD)",
        "(GET_DIRECTIONS)",
    ),
    "DATE_TIME": (
        "at <number> <half>",
        "at <number> <minutes> <half>",
        "on <weekday>",
        "on <weekday> <daypart>",
        "next <weekday> at <number> <half>",
        "tomorrow",
        "tomorrow <daypart>",
        "on <month> <ordinal>",
        "after <number> oclock",
    ),
    "RECURRING": (
        "every <weekday>",
        "every <daypart>",
        "every <number> hours",
        "each <ordinal> <weekday>",
    ),
    "PRIORITY": ("high", "low", "the highest"),
    "RECIPIENT": ("<person>", "<person> and <person>", "(GET_CONTACT)"),
    "CONTENT": (
        "i will <do> the <thing>",
        "the <thing> is <quality>",
        "we need a <quality> <thing>",
        "<person> has a <quality> <thing>",
        "you should <do> the <quality> <thing>",
        "the <thing> and the <thing> are <quality>",
    ),
    "APP": ("<app>",),
    "ORDINAL": ("<ordinal>", "last", "newest"),
    "SENDER": ("<person>", "<person> and <person>", "(GET_CONTACT)"),
    "TOPIC": ("<topic>", "<quality> <topic>", "<topic> and <topic>", "the <thing>"),
    "CONTACT": ("<person>", "<person>", "(GET_CONTACT)"),
    "PHONE_TYPE": ("home", "work", "mobile", "office"),
    "ALARM_NAME": ("<quality> <thing>", "<thing>", "<topic> <daypart>"),
    "DURATION": (
        "<number> minutes",
        "<number> hours",
        "half an hour",
        "<number> hours and <number> minutes",
    ),
    "TIMER_NAME": ("<dish>", "<thing>", "<topic>"),
    "TRACK": (
        "<quality> <thing>",
        "<quality> <daypart>",
        "the <quality> <animal>",
        "<animal> and <thing>",
    ),
    "ARTIST": (
        "the <animal>s",
        "the <quality> <animal>s",
        "<person> and the <animal>s",
    ),
    "GENRE": ("<genre>", "<quality> <genre>"),
    "PLAYLIST": ("<daypart> <genre>", "<quality> <genre>", "<topic>"),
    "ROOM": ("<room>",),
    "LOCATION": ("<city>", "north <city>", "(GET_EVENT)", "(GET_PLACE)"),
    "WEATHER": ("<weather>", "<weather> and <weather>"),
    "UNIT": ("celsius", "fahrenheit"),
    "DESTINATION": ("<city>", "(GET_EVENT)", "(GET_PLACE)"),
    "SOURCE": ("<city>", "the <room>", "(GET_PLACE)"),
    "TRAVEL": ("<vehicle>", "<vehicle> and <vehicle>"),
    "OBSTACLE": ("<obstacle>", "<obstacle> and <obstacle>"),
    "EVENT_NAME": ("<quality> <animal>s", "<topic>", "<city> <topic>"),
    "EVENT_KIND": ("<event>",),
    "PLACE_KIND": ("<place>",),
    "RELATION": ("<relation>",),
    "QUANTITY": ("<number>", "some"),
    "DISH": ("<dish>", "<quality> <dish>", "<dish> and <dish>"),
    "RESTAURANT": ("the <quality> <animal>", "<person> kitchen", "the <place>"),
    "DEGREES": ("<number> degrees", "twenty <number> degrees"),
}

WORDS: dict[str, str] = {
    "person": "anna ben carla david emma felix greta henry ida jonas kira leo mona "
    "nils olga paul quinn rosa simon tina",
    "relation": "mother father sister brother boss doctor neighbour landlord teacher "
    "cousin uncle aunt",
    "do": "buy clean fix water paint return collect check feed sell wash pack print "
    "sort measure lock",
    "thing": "milk bike car garden letter ticket lamp door window shirt cake phone "
    "laptop sofa carpet ladder basket camera guitar piano blanket bottle bucket candle "
    "chair clock",
    "quality": "red blue green old new small big broken heavy cheap quiet loud soft "
    "warm cold dark bright empty full clean",
    "animal": "tiger eagle wolf bear shark panther falcon rabbit turtle beaver dragon "
    "raven",
    "topic": "football politics science fashion chess tennis energy travel history "
    "health money space",
    "genre": "jazz rock blues soul techno folk opera metal swing reggae",
    "city": "berlin paris london madrid rome vienna prague oslo lisbon dublin athens "
    "warsaw geneva munich hamburg milan",
    "room": "kitchen bedroom garage cellar attic bathroom hallway study nursery "
    "balcony",
    "weather": "rain snow wind fog hail sunshine thunder frost",
    "vehicle": "train bus tram ferry taxi bicycle plane scooter",
    "obstacle": "tolls highways bridges traffic tunnels ferries roadworks",
    "event": "game concert parade festival match exhibition lecture wedding race party",
    "place": "bakery pharmacy library museum station cinema bank school hospital "
    "market gym harbour",
    "dish": "pizza soup noodles rice salad burgers curry dumplings pasta tacos",
    "app": "chatter whisper pigeon beacon signalpost",
    "weekday": "monday tuesday wednesday thursday friday saturday sunday",
    "daypart": "morning afternoon evening night noon",
    "month": "january february march april may june july august september october "
    "november december",
    "ordinal": "first second third fourth fifth sixth seventh eighth ninth tenth",
    "number": "one two three four five six seven eight nine ten eleven twelve",
    "minutes": "fifteen thirty fortyfive",
    "half": "am pm",
}
