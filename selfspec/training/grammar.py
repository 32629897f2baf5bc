"""The language of the task: what is said, and what it means. Data only.

An intent has heads, one of which is said, and options, any of which may follow in any
order (or, one of them, come before). A slot is one of its phrases. In a text

    {SLOT}      is a slot, <words> one word of a list of words, and
    (INTENT)    an intent inside a slot, as the whole phrase; only its head is said.

Words of heads and options are said and mean nothing; words of slots are copied into the
parse. A new intent, slot or list of words is a line here, and nothing elsewhere.

Tuned before any arm ran, for an exact match on held-out combinations between 60 and
95 %: the length of the lists, values of few words, the initial values (small_model.py),
batch and steps (settings.py). The baseline's own figure is in the arms' results.
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
            "text {RECIPIENT} that {MESSAGE_CONTENT}",
            "tell {RECIPIENT} that {MESSAGE_CONTENT}",
            "send {RECIPIENT} a message saying {MESSAGE_CONTENT}",
            "let {RECIPIENT} know that {MESSAGE_CONTENT}",
        ),
        ("on {APP_NAME}", "{DATE_TIME}"),
    ),
    "GET_MESSAGE": (
        (
            "read the {ORDINAL} message from {SENDER}",
            "show me messages from {SENDER}",
            "did {SENDER} write to me about {NEWS_TOPIC}",
        ),
        ("on {APP_NAME}", "{DATE_TIME}"),
    ),
    "CREATE_CALL": (
        (
            "call {CONTACT}",
            "phone {CONTACT} on the {PHONE_TYPE} number",
            "start a call with {CONTACT}",
        ),
        ("{DATE_TIME}", "on {APP_NAME}"),
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
            "play {TRACK_TITLE} by {ARTIST_NAME}",
            "play some {GENRE} music",
            "put on the song {TRACK_TITLE}",
            "play my {PLAYLIST_TITLE} playlist",
        ),
        ("in the {ROOM}", "on {APP_NAME}", "for {DURATION}"),
    ),
    "ADD_TO_PLAYLIST": (
        (
            "add {TRACK_TITLE} by {ARTIST_NAME} to {PLAYLIST_TITLE}",
            "save the song {TRACK_TITLE} in my {PLAYLIST_TITLE} list",
        ),
        ("on {APP_NAME}", "with {PRIORITY} priority"),
    ),
    "GET_WEATHER": (
        (
            "what is the weather in {LOCATION}",
            "will there be {WEATHER_KIND} in {LOCATION}",
            "how much {WEATHER_KIND} is expected at {LOCATION}",
        ),
        ("{DATE_TIME}", "in {TEMPERATURE_UNIT}"),
    ),
    "GET_DIRECTIONS": (
        (
            "get directions to {DESTINATION}",
            "how do i get to {DESTINATION}",
            "show me the way to {DESTINATION}",
            "navigate to {DESTINATION}",
        ),
        (
            "from {SOURCE}",
            "by {TRAVEL_METHOD}",
            "avoiding {OBSTACLE_AVOID}",
            "{DATE_TIME}",
        ),
    ),
    "GET_ARRIVAL": (
        (
            "when will i arrive at {DESTINATION}",
            "how long is the trip to {DESTINATION}",
        ),
        ("from {SOURCE}", "by {TRAVEL_METHOD}", "avoiding {OBSTACLE_AVOID}"),
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
            "my {TYPE_RELATION}",
            "the {TYPE_RELATION} of {CONTACT}",
        ),
        ("in {LOCATION}",),
    ),
    "ORDER_FOOD": (
        (
            "order {QUANTITY} {DISH_NAME} from {RESTAURANT_NAME}",
            "get me {QUANTITY} {DISH_NAME}",
            "i would like {DISH_NAME} from {RESTAURANT_NAME}",
        ),
        ("{DATE_TIME}", "for {RECIPIENT}", "to the {ROOM}"),
    ),
    "SET_TEMPERATURE": (
        (
            "set the {ROOM} to {TEMPERATURE_VALUE}",
            "make the {ROOM} {TEMPERATURE_VALUE} warm",
        ),
        ("{DATE_TIME}", "for {DURATION}", "{RECURRING}"),
    ),
    "GET_NEWS": (
        (
            "what is the news about {NEWS_TOPIC}",
            "give me headlines on {NEWS_TOPIC}",
        ),
        ("from {LOCATION}", "{DATE_TIME}", "on {APP_NAME}"),
    ),
}

# slot -> phrases
SLOTS: dict[str, tuple[str, ...]] = {
    "PERSON_REMINDED": ("me", "us", "<person>", "(GET_CONTACT)"),
    "TODO": (
        "<do> the <thing>",
        "<do> <person> <thing>",
        "(SEND_MESSAGE)",
        "(CREATE_CALL)",
        "(ORDER_FOOD)",
        "(GET_DIRECTIONS)",
    ),
    "DATE_TIME": (
        "<weekday>",
        "<weekday> <daypart>",
        "tomorrow",
        "tomorrow <daypart>",
        "<month> <ordinal>",
        "<number> oclock",
    ),
    "RECURRING": ("every <weekday>", "every <daypart>", "each <month>"),
    "PRIORITY": ("high", "low"),
    "RECIPIENT": ("<person>", "(GET_CONTACT)"),
    "MESSAGE_CONTENT": (
        "the <thing> is <quality>",
        "we need a <quality> <thing>",
        "<person> has a <thing>",
    ),
    "APP_NAME": ("<app>",),
    "ORDINAL": ("<ordinal>", "last", "newest"),
    "SENDER": ("<person>", "(GET_CONTACT)"),
    "NEWS_TOPIC": ("<topic>", "<quality> <topic>"),
    "CONTACT": ("<person>", "<person>", "(GET_CONTACT)"),
    "PHONE_TYPE": ("home", "work", "mobile", "office"),
    "ALARM_NAME": ("<thing>", "<topic>"),
    "DURATION": ("<number> minutes", "<number> hours", "half an hour"),
    "TIMER_NAME": ("<dish>", "<thing>"),
    "TRACK_TITLE": ("<quality> <thing>", "<quality> <daypart>"),
    "ARTIST_NAME": ("the <animal>s", "<person> and the <animal>s"),
    "GENRE": ("<genre>",),
    "PLAYLIST_TITLE": ("<genre>", "<topic>"),
    "ROOM": ("<room>",),
    "LOCATION": ("<city>", "north <city>", "(GET_EVENT)", "(GET_PLACE)"),
    "WEATHER_KIND": ("<weather>",),
    "TEMPERATURE_UNIT": ("celsius", "fahrenheit"),
    "DESTINATION": ("<city>", "(GET_EVENT)", "(GET_PLACE)"),
    "SOURCE": ("<city>", "the <room>", "(GET_PLACE)"),
    "TRAVEL_METHOD": ("<vehicle>",),
    "OBSTACLE_AVOID": ("<obstacle>",),
    "EVENT_NAME": ("<animal>s", "<topic>"),
    "EVENT_KIND": ("<event>",),
    "PLACE_KIND": ("<place>",),
    "TYPE_RELATION": ("<relation>",),
    "QUANTITY": ("<number>", "some"),
    "DISH_NAME": ("<dish>", "<quality> <dish>"),
    "RESTAURANT_NAME": ("the <animal>", "<person> kitchen"),
    "TEMPERATURE_VALUE": ("<number> degrees",),
}

WORDS: dict[str, str] = {
    "person": "anna ben carla david emma felix greta henry ida jonas kira leo mona "
    "nils olga paul quinn rosa",
    "relation": "mother father sister brother boss doctor neighbour landlord teacher "
    "cousin",
    "do": "buy clean fix water paint return collect check feed sell wash pack print "
    "sort",
    "thing": "milk bike car garden letter ticket lamp door window shirt cake phone "
    "laptop sofa carpet ladder basket camera guitar piano blanket bottle bucket candle",
    "quality": "red blue green old new small big broken heavy cheap quiet loud soft "
    "warm cold dark bright empty",
    "animal": "tiger eagle wolf bear shark panther falcon rabbit turtle beaver",
    "topic": "football politics science fashion chess tennis energy travel history "
    "health",
    "genre": "jazz rock blues soul techno folk opera metal",
    "city": "berlin paris london madrid rome vienna prague oslo lisbon dublin athens "
    "warsaw geneva munich",
    "room": "kitchen bedroom garage cellar attic bathroom hallway study",
    "weather": "rain snow wind fog hail sunshine thunder frost",
    "vehicle": "train bus tram ferry taxi bicycle plane scooter",
    "obstacle": "tolls highways bridges traffic tunnels ferries",
    "event": "game concert parade festival match exhibition lecture wedding",
    "place": "bakery pharmacy library museum station cinema bank school hospital "
    "market",
    "dish": "pizza soup noodles rice salad burgers curry dumplings pasta tacos",
    "app": "chatter whisper pigeon beacon signalpost",
    "weekday": "monday tuesday wednesday thursday friday saturday sunday",
    "daypart": "morning afternoon evening night noon",
    "month": "january february march april may june july august september october "
    "november december",
    "ordinal": "first second third fourth fifth sixth seventh eighth ninth tenth",
    "number": "one two three four five six seven eight nine ten eleven twelve",
}
