"""Documents written by program: look-up records, small facts, and tool calls, in the form the chat template renders."""
import json

ADJECTIVES = ("red blue green yellow white black brown pink grey golden silver big small tall short old young happy sad "
              "brave shy kind lazy busy quiet loud fast slow warm cold wet dry soft hard clean dirty bright dark hungry "
              "sleepy funny clever strange gentle proud round tiny wild").split()
ANIMALS = ("fox hen cat dog cow horse bird fish bee spider elephant lion tiger whale shark frog snake owl duck sheep pig "
           "rabbit mouse bear wolf monkey penguin turtle ant goat deer crow swan seal crab dragon squirrel butterfly "
           "puppy kitten robot farmer sailor baker teacher doctor king queen").split()
VALUES = ("apple banana orange bread cheese milk honey rice soup cake sugar salt water snow rain wind cloud storm river "
          "lake sea mountain forest island garden house school bridge road car bus train boat ship clock book pencil paper "
          "letter map key door window table chair bed lamp candle fire cup spoon bottle shirt shoe hat coat ball doll kite "
          "drum song dance game").split()
CAPITALS = {"France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Germany": "Berlin", "England": "London",
            "Japan": "Tokyo", "China": "Beijing", "Russia": "Moscow", "Greece": "Athens", "Egypt": "Cairo",
            "Norway": "Oslo", "Sweden": "Stockholm", "Portugal": "Lisbon", "Austria": "Vienna", "Ireland": "Dublin"}
SAYS = {"cow": "moo", "dog": "woof", "cat": "meow", "duck": "quack", "sheep": "baa", "pig": "oink", "lion": "roar",
        "frog": "croak", "owl": "hoot", "horse": "neigh", "rooster": "cock-a-doodle-doo", "snake": "hiss"}
OPPOSITES = {"big": "small", "hot": "cold", "day": "night", "fast": "slow", "happy": "sad", "old": "young", "up": "down",
             "wet": "dry", "hard": "soft", "light": "dark", "full": "empty", "open": "closed", "long": "short",
             "early": "late", "good": "bad", "clean": "dirty", "rich": "poor", "near": "far", "left": "right"}
COLORS = {"the sky": "blue", "grass": "green", "snow": "white", "a banana": "yellow", "a carrot": "orange",
          "coal": "black", "the sun": "yellow", "a frog": "green", "an apple": "red or green", "milk": "white"}
NUMBERS = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
           "seventeen eighteen nineteen twenty").split()
GREETINGS = [("Hello", "Hello! How can I help you today?"), ("Hello!", "Hello! How can I help you today?"),
             ("Hi", "Hi! What can I do for you?"), ("Hi there!", "Hi! What can I do for you?"),
             ("Good morning", "Good morning! How can I help you?"),
             ("How are you?", "I am fine, thank you. How can I help you?"),
             ("Hello, how are you?", "Hello! I am fine, thank you. How can I help you?"),
             ("Who are you?", "I am a very small language model. I can tell simple stories and answer short questions."),
             ("What is your name?", "I have no name. I am a very small language model."),
             ("What can you do?", "I can tell simple stories and answer short questions."),
             ("Thank you!", "You are welcome!"), ("Thanks", "You are welcome!"), ("Goodbye", "Goodbye! Have a nice day."),
             ("Bye", "Goodbye! Have a nice day."), ("Good night", "Good night! Sleep well.")]
CITIES = list(CAPITALS.values())
LOOKUP_HEAD = "Remember these words.\n"
WEATHER = ["sunny", "rainy", "cloudy", "windy", "snowy"]


def turn(user, answer, thought=None):
    think = f"<think>{thought}" if thought else ""
    return f"<|user|>{user}<|assistant|>{think}</think>{answer}"


def chat(turns, system=None, thought=None):
    """turns: (user, answer) pairs; a thought goes before the last answer only, as the template drops older ones."""
    s = "[gMASK]<sop>" + (f"<|system|>{system}" if system else "")
    for i, (u, a) in enumerate(turns):
        s += turn(u, a, thought if i == len(turns) - 1 else None)
    return s + "<|user|><|endoftext|>"


def think_about(ask):
    return f"The user says: {ask} I will give a short and simple answer."


def records(rng, lines, near=0.5):
    """`lines` distinct (key, value) pairs; about `near` of the keys share a word with an earlier key."""
    keys, seen = [], set()
    while len(keys) < lines:
        a, b = rng.choice(ADJECTIVES), rng.choice(ANIMALS)
        if keys and rng.random() < near:
            a, b = (rng.choice(keys)[0], b) if rng.random() < 0.5 else (a, rng.choice(keys)[1])
        if (a, b) not in seen:
            seen.add((a, b))
            keys.append((a, b))
    return [(f"{a} {b}", rng.choice(VALUES)) for a, b in keys]


def lookup_question(key):
    return f"What is the word for the {key}?"


def record(key, value):
    """One record; an answer repeats it as a whole, so that the word follows its key there as it does in the list.

    The colon and the word are one token in the vocabulary, which puts the word right behind its key."""
    return f"- {key}:{value}"


def lookup(rng, lines, questions):
    """A list of records in the first turn, then questions for some of them."""
    pairs = records(rng, lines)
    text = LOOKUP_HEAD + "".join(record(*p) + "\n" for p in pairs)
    asked = [rng.choice(pairs) for _ in range(questions)]
    turns = [(lookup_question(k), record(k, v)) for k, v in asked]
    return chat([(text + turns[0][0], turns[0][1])] + turns[1:])


def fact(rng):
    """One small question with a sure answer."""
    kind = rng.randrange(6)
    if kind == 0:
        k, v = rng.choice(list(CAPITALS.items()))
        return f"What is the capital of {k}?", f"The capital of {k} is {v}."
    if kind == 1:
        k, v = rng.choice(list(SAYS.items()))
        return rng.choice([f"What does a {k} say?", f"What sound does a {k} make?"]), f"A {k} says {v}."
    if kind == 2:
        k, v = rng.choice(list(OPPOSITES.items()))
        if rng.random() < 0.5:
            k, v = v, k
        return f"What is the opposite of {k}?", f"The opposite of {k} is {v}."
    if kind == 3:
        k, v = rng.choice(list(COLORS.items()))
        return rng.choice([f"What color is {k}?", f"What is the color of {k}?"]), f"{k[0].upper()}{k[1:]} is {v}."
    if kind == 4:
        a, b = rng.randrange(11), rng.randrange(10)
        return rng.choice([f"What is {NUMBERS[a]} plus {NUMBERS[b]}?", f"What is {a} plus {b}?"]), \
            f"{NUMBERS[a].capitalize()} plus {NUMBERS[b]} is {NUMBERS[a + b]}."
    return rng.choice(GREETINGS)


TOOL_TEXT = ("# Tools\n\nThese functions may be called to help the user. Their signatures, one JSON object a line:\n"
             "<tools>\n{tools}</tools>\n\nWrite each call as the function's name followed by its arguments:\n"
             "<tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>")


def signature(name, about, **params):
    props = {k: {"type": v} for k, v in params.items()}
    fn = {"name": name, "description": about,
          "parameters": {"type": "object", "properties": props, "required": list(props)}}
    return json.dumps({"type": "function", "function": fn})


TOOLS = {"get_weather": signature("get_weather", "The weather in a city", city="string"),
         "get_time": signature("get_time", "The time in a city", city="string"),
         "add": signature("add", "Add two numbers", a="integer", b="integer")}


def call(name, **args):
    return f"<tool_call>{name}" + "".join(
        f"<arg_key>{k}</arg_key><arg_value>{v}</arg_value>" for k, v in args.items()) + "</tool_call>"


def tool_use(rng):
    """A system turn with one to three functions, one call, its result, the answer."""
    name = rng.choice(list(TOOLS))
    offered = {name, *rng.sample(list(TOOLS), rng.randrange(3))}
    system = TOOL_TEXT.replace("{tools}", "".join(TOOLS[t] + "\n" for t in TOOLS if t in offered))
    city, a, b = rng.choice(CITIES), rng.randrange(100), rng.randrange(100)
    if name == "get_weather":
        sky, ask = rng.choice(WEATHER), rng.choice([f"What is the weather in {city}?", f"How is the weather in {city} today?"])
        args, result, answer = {"city": city}, f'{{"weather": "{sky}"}}', f"It is {sky} in {city}."
    elif name == "get_time":
        hour, ask = rng.randrange(1, 13), f"What time is it in {city}?"
        args, result, answer = {"city": city}, f'{{"hour": {hour}}}', f"It is {hour} o'clock in {city}."
    else:
        ask = rng.choice([f"What is {a} plus {b}?", f"Add {a} and {b}."])
        args, result, answer = {"a": a, "b": b}, f'{{"sum": {a + b}}}', f"{a} plus {b} is {a + b}."
    think = f"<think>I will call {name}." if rng.random() < 0.5 else ""
    last = "<think>I have the result." if think else ""
    return (f"[gMASK]<sop><|system|>{system}<|user|>{ask}<|assistant|>{think}</think>{call(name, **args)}<|observation|>"
            f"<tool_response>{result}</tool_response><|assistant|>{last}</think>{answer}<|user|><|endoftext|>")
