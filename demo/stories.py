"""Small stories written by program: a plot is a list of beats, a beat a choice of wordings, with slots kept consistent."""

KINDS = ("fox rabbit bear mouse cat dog frog duck owl turtle squirrel hedgehog pig goat lamb lion elephant monkey penguin "
         "wolf deer otter beaver hen kitten puppy pony robot dragon girl boy").split()
PEOPLE = ("girl", "boy")
HE_NAMES = ("Tom Ben Max Sam Leo Finn Jack Tim Oliver Henry Peter Noah Jake Adam Paul Oscar Toby Hugo Otto Felix Bruno Milo "
            "Theo Rufus Barney").split()
SHE_NAMES = ("Lily Mia Anna Lucy Emma Sara Ella Rosie Nora Grace Zoe Molly Daisy Ruby Clara Ivy Ada Bella Hazel Luna Pearl "
             "Poppy Tilly Wanda Holly").split()
TRAITS = "little small young brave shy curious clever kind quiet cheerful gentle busy lively friendly honest".split()
PLACES = ("near the sea|in a small village|at the edge of a big forest|on a quiet farm|by a wide river|in a green valley|"
          "on a high hill|in an old house by the road|beside a blue lake|in a warm and sunny garden|in a busy town|"
          "under a tall oak tree|on a small island|near an old mill|in the mountains").split("|")
OBJECTS = ("red kite|blue ball|wooden boat|silver bell|little drum|green hat|yellow scarf|golden button|toy train|small flute|"
           "soft blanket|red balloon|shiny stone|brown basket|picture book|paper star|old lantern|blue umbrella|striped sock|"
           "white shell").split("|")
FOODS = ("bread|apple pie|honey cake|warm soup|pears|berries|cheese|nuts|cookies|plums|pancakes|jam").split("|")
ELDERS = ("old owl|wise turtle|grey wolf|old farmer|kind baker|old sailor|gentle teacher|grandmother|grandfather|old miller|"
          "wise old goat|white swan").split("|")
SPOTS = ("under the bed|behind the door|in the tall grass|under the bridge|near the well|behind the barn|by the old wall|"
         "in the garden|under the table|next to the pond|between the roots of a tree|behind a big stone").split("|")
SKILLS = ("swim|read|bake bread|play the drum|paint|sing|ride a bike|tie a knot|skate on the ice|whistle|dance|fish|"
          "write a letter|climb a tree").split("|")
FEARS = ("the dark|deep water|loud thunder|high places|the big forest|the long bridge|big waves|the cold night").split("|")

START = ["Once upon a time, there was {aA} {A} {K} named {N}. {N} lived {P}.",
         "Once upon a time, {aA} {A} {K} named {N} lived {P}.",
         "Once upon a time, there lived {aA} {A} {K} {P}. {His} name was {N}.",
         "Once upon a time {P}, there was {aA} {A} {K} called {N}.",
         "{N} was {aA} {A} {K} who lived {P}.", "There was once {aA} {A} {K} named {N}, who lived {P}.",
         "Long ago, {aA} {A} {K} named {N} lived {P}."]
LIKES = ["{He} liked to play outside and to listen to the birds.", "{He} loved to walk in the morning sun.",
         "Every day {he} helped {his} mother in the house.", "{He} had many friends, and {his} best friend was {aJ} {J} named {M}.",
         "{His} best friend was {M} the {J}.", "{He} liked {F} more than anything else.", "{He} was always ready to help.",
         "Every evening {he} looked at the stars and asked many questions.", "{He} had a warm bed and a small window with a view."]
DAY = ["One day,", "One morning,", "One sunny day,", "One rainy day,", "One cold morning,", "One windy afternoon,", "One evening,"]
LATER = ["The next day,", "A week later,", "Some days later,", "Another day,", "When spring came,", "In the summer,",
         "Not long after that,"]
END = ["From that day on, {N} and {M} were the best of friends.", "{N} went to bed that night with a smile.",
       "And {N} never forgot that day.", "They all sat together and ate {F} until the moon came up.",
       "{N} was happy, and {M} was happy too.", "That night, {N} slept very well.", "And they lived happily ever after.",
       "{N} told the story to everyone {P}.", "After that, {N} was a little braver every day.",
       "The sun went down, and everyone went home happy."]
LESSON = ["{N} learned that it is good to share.", "{N} learned that a true friend is better than gold.",
          "{N} knew now that it is best to tell the truth.", "{N} learned that it is all right to ask for help.",
          "{N} learned that good things take time.", "{N} learned that being kind makes everyone happy."]
FEEL = ["The sky was blue and the wind was soft.", "The birds were singing in the trees.", "It was very quiet.",
        "The sun was warm.", "{N} felt {his} heart beat fast.", "{N} took a deep breath.", "Far away, a bell was ringing."]

LOST_TOY = (["{D} {N} could not find {his} {O}.", "{D} {N} wanted to play with {his} {O}, but it was gone.",
             "{D} the wind took {N}'s {O} away."],
            ["\"Where is my {O}?\" {he} asked.", "{He} was very sad, because {he} loved that {O}.",
             "{He} began to cry. \"Oh no, my {O}!\" {he} said."],
            ["{He} looked {S}, but it was not there.", "First {he} looked {S}. There was only dust."],
            ["Then {he} looked {T}. It was not there either.", "Then {he} went to look {T}, but {he} found nothing."],
            ["{M} the {J} came by. \"Why are you so sad?\" asked {M}.", "{M} saw {N} and asked, \"What is wrong?\""],
            ["\"I have lost my {O},\" said {N}.", "\"My {O} is gone, and I do not know where to look,\" said {N}."],
            ["\"Do not worry. We will look together,\" said {M}.", "\"Let me help you. Four eyes see more than two,\" said {M}."],
            ["They looked and looked. At last {M} found the {O} {U}.", "They walked all around. Then {N} saw something {U}. It was the {O}!"],
            ["\"Thank you, {M}!\" said {N}. \"Now we can play together.\"", "{N} laughed and hugged {M}. \"You are a good friend,\" {he} said."],
            ["They played with the {O} until it was dark.", "From then on, {N} let {M} play with the {O} too."])
LOST_WAY = (["{D} {N} went into the forest to look for {F}.", "{D} {N} followed a yellow butterfly into the forest."],
            ["{He} walked and walked, and soon {he} did not know the way home.", "{He} did not look at the path, and after a while {he} was lost."],
            ["The trees were tall and the light was low.", "It was getting dark, and the forest was full of strange sounds."],
            ["\"Hello? Is anyone there?\" {he} called.", "{N} sat down on a stone and wanted to cry."],
            ["{aJC} {J} came out from behind a tree. \"My name is {M},\" said the {J}. \"Are you lost?\"", "Then {he} heard a soft voice. It was {M} the {J}."],
            ["\"Yes,\" said {N}. \"I want to go home, but I do not know the way.\"", "\"I am lost,\" said {N}. \"Can you help me?\""],
            ["\"I know this forest well,\" said {M}. \"Come with me.\"", "\"Follow me,\" said {M}. \"We only have to follow the river.\""],
            ["They walked along the river and over the bridge.", "They walked past the old tree and across a field."],
            ["Soon {N} saw the light in {his} own window.", "At last {N} saw {his} house and began to run."],
            ["{His} mother was so glad that she gave them both warm soup.", "{His} mother hugged {him} and said, \"I am so glad you are home.\""],
            ["\"You can visit me any time,\" {N} said to {M}.", "The next day, {N} brought {M} some {F} to say thank you."])
SHARE = (["{D} {N}'s mother gave {him} some {F}.", "{D} {N} had a big basket of {F}."],
         ["It smelled very good.", "\"This is all for me,\" thought {N}."],
         ["{M} the {J} came by. {MHe} looked tired and hungry.", "On the way {he} met {M} the {J}, who had nothing to eat."],
         ["\"May I have some {F}?\" asked {M}.", "\"That smells so good,\" said {M}. \"I have not eaten today.\""],
         ["\"No, it is mine,\" said {N}, and {he} went away.", "{N} shook {his} head. \"There is not enough,\" {he} said."],
         ["{N} sat down to eat, but the {F} did not taste good.", "{He} ate a little, but {he} kept thinking of {M}."],
         ["\"I was not kind,\" {he} thought.", "\"{M} is my friend, and {mhe} is hungry,\" {he} said to {himself}."],
         ["So {N} went back. \"I am sorry,\" {he} said. \"Let us eat together.\"", "So {he} ran back to {M}. \"Here, half of it is for you,\" said {N}."],
         ["{M} smiled. They sat {U} and ate it all.", "They sat in the sun and ate together, and now it tasted wonderful."],
         ["The next week, {M} brought {N} a basket of {G}.", "\"Thank you,\" said {M}. \"Next time I will bring some {G}.\""])
AFRAID = (["{N} was afraid of {R}.", "There was only one thing that {N} did not like. {He} was afraid of {R}."],
          ["When the others played, {N} stayed at home.", "{He} did not want anyone to know it."],
          ["{D} {M} the {J} came and asked, \"Why do you never come with us?\"", "{D} {M} the {J} found {N} sitting alone."],
          ["\"I am afraid of {R},\" said {N} in a small voice.", "\"Please do not laugh,\" said {N}. \"I am afraid of {R}.\""],
          ["{M} did not laugh. \"I was afraid too, once,\" {mhe} said.", "\"Everyone is afraid of something,\" said {M}."],
          ["\"Take my hand. We will go one small step at a time.\"", "\"Let us try together, very slowly,\" said {M}."],
          ["The first time, {N} went only a little way.", "On the first day, {N} wanted to run home."],
          ["On the second day, it was already a little better.", "But {he} tried again, and {he} went a little farther."],
          ["On the third day, {N} was not afraid of {R} any more.", "After a week, {N} looked around and laughed. \"It is not so bad!\" {he} said."],
          ["\"I did it!\" {he} called. {M} was very proud.", "\"You are very brave,\" said {M}."])
TRUTH = (["{D} {N} was playing with a ball in the house.", "{D} {N} ran through the kitchen, although {his} mother had told {him} not to run."],
         ["Crash! The blue pot fell down and broke.", "{He} hit the table, and the big jar fell and broke."],
         ["It was the pot that {his} mother loved most.", "{N} looked at the pieces and did not know what to do."],
         ["{He} hid the pieces {S}.", "{He} quickly put the pieces {S}, where no one could see them."],
         ["But all day long {he} felt bad.", "At dinner {he} could not eat."],
         ["{M} the {J} said, \"You should tell your mother. She will understand.\"", "{He} asked {M} the {J} what to do. \"Tell the truth,\" said {M}."],
         ["So {N} went to {his} mother. \"I broke it,\" {he} said. \"I am sorry.\"", "In the evening {N} said, \"Mother, I broke the pot, and then I hid it. I am very sorry.\""],
         ["{His} mother was quiet for a moment. Then she smiled.", "{His} mother took {him} in her arms."],
         ["\"A pot is only a pot,\" she said. \"But it makes me happy that you told me the truth.\"", "\"Thank you for telling me,\" she said. \"That was brave.\""],
         ["Together they made a new pot out of clay.", "The next day, {N} and {M} painted a new pot for her."])
HURT_BIRD = (["{D} {N} found a small bird {S}.", "{D} {N} heard a weak little sound. A bird was lying {S}."],
             ["Its wing was hurt, and it could not fly.", "It could not move its wing."],
             ["\"Poor little bird,\" said {N}. \"I will take care of you.\"", "{N} picked it up very gently and carried it home."],
             ["{He} made a small bed out of hay.", "{He} put it in a box with a soft cloth."],
             ["Every day {he} gave it water and seeds.", "{M} the {J} brought seeds, and {N} brought water."],
             ["After a week, the bird began to sing.", "Slowly the wing became strong again."],
             ["Then the day came when the bird could fly. {N} opened the window.", "One morning the bird jumped to the window and looked at the sky."],
             ["{N} was sad, but {he} said, \"Fly, little bird. The sky is your home.\"", "\"You are free,\" said {N}, and the bird flew up into the blue sky."],
             ["In spring the bird came back and sang in the tree in front of the house.", "The next morning there was {aO} {O} at the door. It was a gift from the bird."])
SEED = (["{D} the {E} gave {N} a small brown seed.", "{D} {N} found a seed {S}."],
        ["\"What will it be?\" asked {N}. \"Wait and see,\" said the {E}.", "{He} put it in the ground and gave it some water."],
        ["The next day {he} looked, but there was nothing to see.", "{N} sat down next to it and waited. Nothing happened."],
        ["\"It is too slow,\" {he} said.", "\"Maybe it does not like me,\" said {N}."],
        ["\"Give it water and sun, and give it time,\" said {M} the {J}.", "{M} the {J} said, \"A seed needs time, just like us.\""],
        ["So {N} gave it water every morning.", "Every day {N} came with water, in the sun and in the rain."],
        ["After many days, a tiny green leaf came out of the ground.", "One morning there was something green. It was a leaf!"],
        ["It grew and grew, until it was taller than {N}.", "In summer it had a big yellow flower that looked like the sun."],
        ["\"Look what you have done,\" said {M}.", "Everyone came to see it."],
        ["In autumn there were new seeds, and {N} gave one to every friend.", "{N} kept the new seeds in a box for the next spring."])
BOAT = (["{D} {N} wanted to build a boat.", "{D} {N} said, \"I will build a boat and sail on the lake.\""],
        ["{He} took some wood and some nails and began to work.", "{He} found old wood {S} and carried it to the water."],
        ["When the boat was ready, {he} put it on the water. It sank at once.", "The first boat was too heavy, and it sank."],
        ["\"I will never do it,\" said {N}.", "{N} was angry and kicked a stone."],
        ["{M} the {J} looked at the boat. \"The wood is too thick,\" {mhe} said. \"Let us try again.\"", "\"Let us ask the {E},\" said {M} the {J}."],
        ["They worked for three days.", "They cut and pulled and tied, and they sang while they worked."],
        ["The second boat did not sink, but it went round and round.", "The second boat had a hole, and the water came in."],
        ["They laughed and tried once more.", "\"We are getting better,\" said {M}."],
        ["The third boat was light and strong. It sailed across the lake.", "The third boat moved over the water like a duck."],
        ["\"We did it!\" they shouted.", "They put {aO} {O} on the boat for good luck."])
BIRTHDAY = (["It was {N}'s birthday, but no one said anything.", "{D} {N} woke up very early, because it was {his} birthday."],
            ["{He} went to {M} the {J}, but {M} was not at home.", "{N} met {M} the {J} on the road. \"I have no time today,\" said {M} and ran away."],
            ["{He} went to the {E}, but the {E} only said, \"Good morning.\"", "Then {he} saw the {E}, who carried a big bag and did not stop."],
            ["\"Everyone has forgotten me,\" thought {N}.", "{N} was sad and walked slowly home."],
            ["When {he} came home, it was dark inside.", "{He} opened the door. It was very quiet."],
            ["Then all the lights came on. \"Surprise!\" called {his} friends.", "\"Happy birthday, {N}!\" everyone shouted."],
            ["There was a big cake, and there was {F} too.", "On the table there was {F}, and next to it was {aO} {O} with a ribbon."],
            ["\"We wanted to surprise you,\" said {M}.", "\"We could never forget your birthday,\" said {M}."],
            ["They sang and danced all evening.", "{N} laughed so much that {he} had to sit down."])
RACE = (["{D} there was a big race {P}.", "{D} all the animals came together for a race."],
        ["{N} was fast, and {he} wanted to win the {O}.", "The winner would get {aO} {O}."],
        ["\"One, two, three, go!\" called the {E}.", "The {E} rang a bell, and everyone began to run."],
        ["Soon {N} was in front.", "{N} ran as fast as the wind."],
        ["Then {he} heard a cry. {M} the {J} had fallen down.", "But then {he} saw {M} the {J} lying on the ground."],
        ["\"My foot hurts,\" said {M}. \"Go on, or you will lose.\"", "\"Please help me,\" said {M}."],
        ["{N} stopped. \"A friend is more than a race,\" {he} said.", "{N} did not think long. {He} went back and helped {M} up."],
        ["Slowly they walked to the end together. They were the last ones.", "Side by side they came in last."],
        ["But everyone clapped, and the {E} gave the {O} to {N}.", "\"You did not win the race,\" said the {E}, \"but you have the biggest heart.\""],
        ["{N} and {M} shared the prize.", "\"We won it together,\" said {N}."])
KEY = (["{D} {N} found a small golden key {S}.", "{D} {N} saw something shiny {S}. It was a key."],
       ["\"What does it open?\" {he} asked.", "{He} showed it to {M} the {J}. \"We must find the door,\" said {M}."],
       ["They tried it on every door, but it did not fit.", "They tried the door of the barn, but the key was too small."],
       ["At last they asked the {E}.", "Then they remembered the {E}, who knew many things."],
       ["\"That is the key to the old garden behind the wall,\" said the {E}.", "\"I lost that key many years ago,\" said the {E}. \"It opens my old box.\""],
       ["The key turned slowly. Click!", "With shaking hands, {N} turned the key."],
       ["Inside there was {aO} {O} and a letter.", "Inside they saw {aO} {O}, and it was as good as new."],
       ["\"It was mine when I was small,\" said the {E}. \"Now it is yours.\"", "\"You found the key, so you may keep it,\" said the {E}."],
       ["{N} and {M} took good care of it.", "They played with it every day, first {N}, then {M}."])
SNOW = (["{D} {N} looked out of the window. Everything was white.", "{D} the first snow fell."],
        ["\"Snow!\" called {N}, and {he} ran outside.", "{N} had never seen snow before."],
        ["{He} made a big snowball, and then a snowman.", "{M} the {J} came out too, and they made a snowman with a carrot for a nose."],
        ["After a while, {M} was very cold.", "\"My ears are so cold,\" said {M} the {J}."],
        ["{N} took off {his} scarf and gave it to {M}.", "\"Take my coat,\" said {N}. \"I am still warm.\""],
        ["Then they went inside and sat by the fire.", "Then the {E} called them into the house."],
        ["They drank warm milk and looked at the snow.", "There was {F}, and their feet became warm again."],
        ["\"Will the snowman be cold?\" asked {N}. \"No,\" said {M}, \"he likes it.\"", "\"I hope the snow stays a long time,\" said {N}."])
MARKET = (["{D} {N}'s mother gave {him} a coin. \"Go to the market and buy some {F},\" she said.", "{D} {N} went to the market to buy some {F}."],
          ["On the way {he} met the {E}, who sat by the road.", "On the road {he} saw the {E}, who looked cold and tired."],
          ["\"I have not eaten since yesterday,\" said the {E}.", "\"Could you help me?\" asked the {E}."],
          ["{N} looked at {his} coin. Then {he} gave it away.", "{N} thought for a moment. Then {he} gave the coin to the {E}."],
          ["\"You are very kind,\" said the {E}. \"Take this {O}. It may be useful.\"", "The {E} smiled and gave {him} {aO} {O}."],
          ["At the market {N} met {M} the {J}. {M} had been looking for {aO} {O} for a long time.", "At the market {M} the {J} saw the {O}. \"I have always wanted one!\" said {M}."],
          ["\"I will give you all this {F} for it,\" said {M}.", "\"Will you trade it for a basket of {F}?\" asked {M}."],
          ["So {N} came home with more {F} than one coin could buy.", "{N} said yes, and carried the {F} home."],
          ["{His} mother laughed when she heard the story.", "\"A kind heart is never poor,\" said {his} mother."])
NOISE = (["One night, {N} heard a strange noise.", "One night, {N} woke up. Something went tap, tap, tap."],
         ["\"Who is there?\" {he} asked, but no one answered.", "{He} pulled the blanket over {his} head."],
         ["The noise came again. It came from {S2}.", "Tap, tap, tap. It was louder now."],
         ["{N} took a lamp and went to wake {M} the {J}.", "{He} called {M} the {J}, who lived next door."],
         ["\"Let us look together,\" said {M}.", "\"Maybe it is a ghost,\" said {M}, and they held hands."],
         ["Slowly they walked through the dark. There was nothing {S}.", "They looked {S}, but there was nobody."],
         ["Then they saw it. It was only a little kitten, wet from the rain.", "Then they opened the door. It was only the {O}, which the wind moved up and down."],
         ["They both began to laugh.", "\"And I was so afraid!\" said {N}."],
         ["They drank some milk and went back to bed.", "After that, {N} slept until the sun came up."])
SKILL = (["{N} wanted to learn to {L}.", "More than anything, {N} wanted to {L}."],
         ["{D} {he} went to the {E}. \"Can you teach me?\" {he} asked.", "{D} {he} saw how well the {E} could {L}."],
         ["\"It is not hard,\" said the {E}, \"but you must practice every day.\"", "\"Come to me every morning,\" said the {E}."],
         ["The first day, everything went wrong.", "At first {N} made many mistakes."],
         ["{M} the {J} laughed at {him}, and {N} wanted to stop.", "\"I am too small for this,\" said {N}."],
         ["\"Everyone makes mistakes,\" said the {E}. \"Try again.\"", "But the {E} only smiled. \"I also had to learn it once,\" said the {E}."],
         ["So {N} tried again and again.", "{N} practiced in the morning and in the evening."],
         ["After a month, {he} could {L} very well.", "And one day, it worked! {N} could {L}."],
         ["{M} came and said, \"I am sorry that I laughed. Will you teach me too?\"", "\"That was beautiful,\" said {M}. \"Can you show me how?\""],
         ["\"Of course,\" said {N}.", "And {N} taught {M} everything {he} knew."])
STORM = (["One night there was a big storm.", "One night the wind was so strong that the trees fell down."],
         ["In the morning, the house of {M} the {J} was gone.", "The storm took the roof of {M} the {J}."],
         ["{M} sat on a stone and cried. \"Where will I sleep now?\"", "\"I have no home any more,\" said {M}."],
         ["\"You can stay with me,\" said {N}.", "{N} took {M} by the hand. \"Come with me,\" {he} said."],
         ["Then {N} went from door to door and asked everyone to help.", "The next day, {N} called all the friends together."],
         ["The {E} brought wood, and the others brought stones.", "One brought wood, one brought nails, and the {E} brought {F} for everyone."],
         ["They worked from morning to evening.", "They sang while they worked, and no one was tired."],
         ["After three days there was a new house, and it was even better than the old one.", "When the sun went down on the third day, the new house was ready."],
         ["{M} put {aO} {O} over the door.", "\"I have the best friends in the world,\" said {M}."])
PLOTS = [LOST_TOY, LOST_WAY, SHARE, AFRAID, TRUTH, HURT_BIRD, SEED, BOAT, BIRTHDAY, RACE, KEY, SNOW, MARKET, NOISE, SKILL,
         STORM]


def article(text):
    return "an" if text[0] in "aeiou" or text == "honest" else "a"


def things(rng):
    """Values for the slots that may change from one adventure to the next."""
    obj = rng.choice(OBJECTS)
    food, food2 = rng.sample(FOODS, 2)
    s, t, u = rng.sample(SPOTS, 3)
    return {"O": obj, "aO": article(obj), "F": food, "G": food2, "E": rng.choice(ELDERS), "S": s, "T": t, "U": u,
            "S2": rng.choice(["the kitchen", "the garden", "the roof", "the door", "the window"]),
            "L": rng.choice(SKILLS), "R": rng.choice(FEARS), "D": rng.choice(DAY)}


def cast(rng):
    """A value for every slot that stays the same through a story."""
    kind, other = rng.sample(KINDS, 2)
    she = kind == "girl" or (kind != "boy" and rng.random() < 0.5)
    friend_she = other == "girl" or (other != "boy" and rng.random() < 0.5)
    name = rng.choice(SHE_NAMES if she else HE_NAMES)
    friend = rng.choice([n for n in (SHE_NAMES if friend_she else HE_NAMES) if n != name])
    trait = rng.choice(TRAITS)
    return {"N": name, "K": kind, "A": trait, "aA": article(trait), "aK": article(kind), "P": rng.choice(PLACES),
            "M": friend, "J": other, "aJ": article(other), "aJC": article(other).capitalize(),
            "he": "she" if she else "he", "He": "She" if she else "He", "him": "her" if she else "him",
            "his": "her" if she else "his", "His": "Her" if she else "His", "himself": "herself" if she else "himself",
            "mhe": "she" if friend_she else "he", "MHe": "She" if friend_she else "He"}


def adventure(rng, beats, slots):
    """One plot told: two paragraphs."""
    body = []
    for i, beat in enumerate(beats):
        body.append(rng.choice(beat))
        if i and rng.random() < 0.06:
            body.append(rng.choice(FEEL))
    half = len(body) // 2
    return [" ".join(part).format(**slots) for part in (body[:half], body[half:])]


def story(rng):
    """A story of one to three adventures of the same two friends, and its cast. They meet as strangers only at first."""
    who = cast(rng)
    slots = {**who, **things(rng)}
    text = [" ".join([rng.choice(START)] + rng.sample(LIKES, rng.choice([0, 1, 1, 2]))).format(**slots)]
    plots = rng.sample(PLOTS, rng.choice([1, 2, 2, 3]))
    plots.sort(key=lambda p: p is not LOST_WAY)
    for i, plot in enumerate(plots):
        if i:
            slots = {**who, **things(rng), "D": rng.choice(LATER)}
        text += adventure(rng, plot, slots)
    text[-1] += " " + " ".join(([rng.choice(LESSON)] if rng.random() < 0.2 else []) + [rng.choice(END)]).format(**slots)
    return ("\n\n" if rng.random() < 0.5 else " ").join(text), who


def request(rng, slots):
    """A chat user's wish that the story with these slots fulfils."""
    return rng.choice(["Tell me a story about {aK} {K}.", "Tell me a story about {N}.", "Write a short story about {aK} {K} named {N}.",
                       "Can you tell me a story?", "Tell me a story.", "Please tell me a story about {aK} {K} and {aJ} {J}.",
                       "Write a story about {N} and {M}."]).format(**slots)
