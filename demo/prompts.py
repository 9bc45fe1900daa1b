"""What the teacher model is asked: short questions, drawn from word lists."""

THINGS = ("cat|dog|cow|horse|bird|fish|bee|butterfly|spider|elephant|lion|tiger|whale|shark|frog|snake|owl|duck|chicken|"
          "sheep|pig|rabbit|mouse|bear|wolf|fox|monkey|penguin|turtle|ant|tree|flower|seed|leaf|apple|banana|orange|"
          "carrot|potato|bread|cheese|milk|egg|honey|rice|soup|cake|sugar|salt|water|ice|snow|rain|wind|cloud|storm|"
          "rainbow|sun|moon|star|planet|earth|river|lake|sea|ocean|mountain|hill|forest|desert|island|beach|farm|garden|"
          "house|school|library|hospital|bridge|road|car|bus|train|bicycle|boat|ship|airplane|rocket|computer|telephone|"
          "clock|book|pencil|paper|letter|map|key|door|window|table|chair|bed|lamp|candle|fire|cup|spoon|knife|bottle|"
          "shirt|shoe|hat|coat|ball|doll|kite|drum|guitar|piano|song|dance|game|story|poem|picture|painting|doctor|nurse|"
          "teacher|farmer|baker|pilot|sailor|king|queen|friend|family|baby|brother|sister|mother|father|heart|hand|eye|"
          "ear|nose|foot|brain|bone|sleep|dream|birthday|winter|summer|spring|autumn|morning|night|week|year|money|"
          "market|village|city|country|volcano|earthquake|dinosaur|robot|magnet|mirror|umbrella|ladder|hammer|wheel|"
          "engine|battery|light|shadow|sound|music|color|number|circle|square").split("|")
TOPICS = ("animals|the weather|the sun|the moon|the stars|the sea|trees|birds|dogs|cats|bees|flowers|food|bread|fruit|"
          "vegetables|water|healthy food|sleep|exercise|reading|books|music|drawing|painting|games|sports|swimming|"
          "running|school|friends|family|kindness|sharing|honesty|courage|patience|the seasons|winter|summer|snow|rain|"
          "mountains|rivers|farms|gardens|cities|trains|boats|airplanes|computers|robots|space|planets|dinosaurs|"
          "elephants|whales|penguins|butterflies|the human body|the heart|teeth|colors|numbers|shapes|time|money|"
          "cooking|baking|gardening|walking|dreams|birthdays|holidays|letters|maps|bridges|the wind|fire|ice").split("|")
ACTIVITIES = ("sleep better|make a friend|learn a new song|clean my room|take care of a dog|take care of a cat|"
              "grow a plant|bake bread|make a sandwich|boil an egg|make tea|write a letter|read more books|"
              "save money|stay healthy|learn to swim|ride a bike|draw a face|stop being afraid|say sorry|"
              "study for a test|be kind|stay warm in winter|stay cool in summer|make a salad|brush my teeth|"
              "help my mother|be happy|learn a language|pack a bag|plan a party|keep a secret|wake up early|"
              "make soup|plant a tree|feed birds|fold a paper boat|play chess|tell a story|save water").split("|")
WHY = ("is the sky blue|do birds fly south|do we sleep|do we eat food|do leaves fall in autumn|is the sea salty|"
       "do bees make honey|do cats purr|do dogs bark|does it rain|does ice melt|do plants need sun|is snow white|"
       "do we brush our teeth|do we go to school|do people laugh|do people cry|do we need water|is fire hot|"
       "do stars shine|does the moon change shape|do we wear coats in winter|do fish live in water|"
       "is it good to share|is it good to read|should we tell the truth|should we exercise|do we have families|"
       "do trees have leaves|do we need friends|do spiders make webs|do bears sleep in winter").split("|")
ASK = ["What can you do with a {t}?", "Describe a {t} in one sentence.", "Why is a {t} useful?",
       "Write one sentence about a {t}.", "Tell me one fact about a {t}.", "Where can I find a {t}?"]
ASK_TOPIC = ["Tell me about {t}.", "What do you know about {t}?", "Write two sentences about {t}.",
             "Tell me something interesting about {t}.", "Why do people like {t}?", "Can you tell me about {t}?"]
ASK_HOW = ["How can I {a}?", "How do I {a}?", "I want to {a}. What should I do?", "Give me one tip: how can I {a}?",
           "Can you help me {a}?"]
CHAT_SYSTEM = "You are a helpful assistant. You answer in one or two short and simple sentences."


def an(text):
    """Repair `a` before a vowel."""
    for v in "aeiou":
        text = text.replace(f" a {v}", f" an {v}")
    return text


def question(rng):
    """One short question."""
    kind = rng.random()
    if kind < 0.3:
        return an(rng.choice(ASK).format(t=rng.choice(THINGS)))
    if kind < 0.6:
        return rng.choice(ASK_TOPIC).format(t=rng.choice(TOPICS))
    if kind < 0.82:
        return rng.choice(ASK_HOW).format(a=rng.choice(ACTIVITIES))
    return f"Why {rng.choice(WHY)}?"

