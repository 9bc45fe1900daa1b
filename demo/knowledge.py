"""Plain statements about common things, written by hand: thing -> (what it is, something more about it)."""

FACTS = {
    "cat": ("a small animal with soft fur", "It likes to sleep, to play and to catch mice"),
    "dog": ("a friendly animal that lives with people", "It can guard the house and likes to run"),
    "cow": ("a large farm animal", "It eats grass and gives us milk"),
    "horse": ("a strong animal with long legs", "People can ride it"),
    "bird": ("an animal with wings and feathers", "Most birds can fly and lay eggs"),
    "fish": ("an animal that lives in water", "It breathes with gills and swims with fins"),
    "bee": ("a small insect that flies", "It visits flowers and makes honey"),
    "butterfly": ("an insect with colorful wings", "It begins its life as a caterpillar"),
    "spider": ("a small animal with eight legs", "It makes a web to catch insects"),
    "elephant": ("the largest animal on land", "It has a long trunk and big ears"),
    "lion": ("a big wild cat", "It lives in Africa and has a loud roar"),
    "tiger": ("a big wild cat with stripes", "It is a strong hunter and can swim well"),
    "whale": ("a very large animal that lives in the sea", "It breathes air and can dive very deep"),
    "shark": ("a large fish with sharp teeth", "It lives in the sea"),
    "frog": ("a small green animal that can jump", "It lives near water and eats insects"),
    "snake": ("a long animal without legs", "It moves by sliding over the ground"),
    "owl": ("a bird that is awake at night", "It has big eyes and can fly without a sound"),
    "duck": ("a bird that can swim", "It lives near ponds and lakes"),
    "sheep": ("a farm animal with thick wool", "Its wool is used to make warm clothes"),
    "pig": ("a farm animal with a round nose", "It likes to roll in the mud"),
    "rabbit": ("a small animal with long ears", "It eats grass and can jump fast"),
    "mouse": ("a very small animal with a long tail", "It likes to eat seeds and cheese"),
    "bear": ("a big and heavy animal with thick fur", "It likes honey and sleeps in winter"),
    "wolf": ("a wild animal that looks like a dog", "It lives in a group that is called a pack"),
    "fox": ("a wild animal with red fur", "It has a bushy tail and is very clever"),
    "monkey": ("an animal that climbs trees", "It has hands like ours and likes fruit"),
    "penguin": ("a bird that cannot fly", "It swims very well and lives in the cold"),
    "turtle": ("a slow animal with a hard shell", "It can live for a very long time"),
    "ant": ("a very small insect", "It lives with many others and is very strong for its size"),
    "tree": ("a tall plant with a trunk of wood", "It has branches and leaves and gives us shade"),
    "flower": ("the colorful part of a plant", "It smells good, and bees like it"),
    "seed": ("a small thing from which a plant grows", "It needs water and sun"),
    "apple": ("a round fruit", "It grows on a tree and can be red, green or yellow"),
    "banana": ("a long yellow fruit", "It is soft and sweet"),
    "carrot": ("an orange vegetable", "It grows under the ground"),
    "bread": ("a food made from flour and water", "It is baked in an oven"),
    "cheese": ("a food made from milk", "It can be soft or hard"),
    "honey": ("a sweet food made by bees", "It is yellow and sticky"),
    "egg": ("something that a hen lays", "We can boil it or fry it"),
    "rain": ("water that falls from the clouds", "Plants need it to grow"),
    "snow": ("frozen water that falls from the sky", "It is white and cold"),
    "cloud": ("made of many tiny drops of water", "It can bring rain or snow"),
    "rainbow": ("a bow of colors in the sky", "We see it when the sun shines through the rain"),
    "sun": ("a star", "It gives us light and keeps us warm"),
    "moon": ("a big round rock that moves around the earth", "We can see it at night"),
    "star": ("a ball of very hot gas", "It shines in the night sky"),
    "river": ("a long stream of water", "It flows to the sea"),
    "lake": ("a large area of water with land around it", "People like to swim in it"),
    "sea": ("a very large area of salt water", "Fish and whales live in it"),
    "mountain": ("a very high hill", "There is often snow on top of it"),
    "forest": ("a place with many trees", "Many animals live in it"),
    "desert": ("a very dry place", "There is a lot of sand and very little rain"),
    "island": ("a piece of land with water all around it", "You can reach it by boat"),
    "house": ("a building where people live", "It has a roof, walls, doors and windows"),
    "school": ("a place where children learn", "They learn to read, to write and to count"),
    "library": ("a place with many books", "You can read them there or take them home"),
    "hospital": ("a place where sick people get help", "Doctors and nurses work there"),
    "bridge": ("something that goes over a river or a road", "It helps us to get to the other side"),
    "car": ("a machine with four wheels", "It takes people from one place to another"),
    "train": ("a row of cars that moves on rails", "It can carry many people"),
    "bicycle": ("a thing with two wheels", "You move it with your feet"),
    "boat": ("a thing that moves on water", "People use it to fish and to travel"),
    "airplane": ("a machine that can fly", "It has two wings and carries people far away"),
    "clock": ("a thing that shows the time", "It has two hands and twelve numbers"),
    "book": ("many pages with words or pictures", "We read it to learn or for fun"),
    "pencil": ("a thing to write and draw with", "It is made of wood"),
    "key": ("a small piece of metal", "It opens a lock"),
    "door": ("something that you open to go into a room", "It can be made of wood"),
    "window": ("a hole in the wall with glass in it", "It lets the light in"),
    "table": ("a flat piece of wood on legs", "We eat and work at it"),
    "chair": ("a thing to sit on", "It has four legs and a back"),
    "bed": ("a thing to sleep on", "It is soft and warm"),
    "umbrella": ("a thing that keeps us dry", "We open it when it rains"),
    "kite": ("a toy that flies in the wind", "You hold it on a long string"),
    "drum": ("a round instrument", "You hit it with your hands or with sticks"),
    "doctor": ("a person who helps sick people", "A doctor often works in a hospital"),
    "teacher": ("a person who helps others to learn", "A teacher often works in a school"),
    "farmer": ("a person who works on a farm", "A farmer grows food and takes care of animals"),
    "baker": ("a person who bakes bread and cakes", "A baker gets up very early"),
    "friend": ("a person you like and trust", "A good friend helps you when you are sad"),
    "king": ("a man who rules a country", "A king often wears a crown"),
    "dinosaur": ("an animal that lived a very long time ago", "Some of them were very big"),
    "robot": ("a machine that can do work", "People tell it what to do"),
    "volcano": ("a mountain with fire inside", "Sometimes hot rock comes out of it"),
    "magnet": ("a thing that pulls iron", "It has two ends"),
}
ONLY_THE = ("sun", "moon", "sea")
MASS = ("bread", "cheese", "honey", "rain", "snow")


def named(thing):
    """The thing as a sentence names it: a cat, an owl, the sun, bread."""
    if thing in MASS:
        return thing
    if thing in ONLY_THE:
        return "the " + thing
    return ("an " if thing[0] in "aeiou" else "a ") + thing


def ask(rng):
    """A question about one thing, and its answer."""
    thing, (what, more) = rng.choice(list(FACTS.items()))
    n = named(thing)
    capital = n[0].upper() + n[1:]
    kind = rng.random()
    if kind < 0.5:
        q = rng.choice([f"What is {n}?", f"What is {n}?", f"Can you tell me what {n} is?", f"Do you know what {n} is?",
                        f"Please explain what {n} is."])
        return q, f"{capital} is {what}. {more}."
    if kind < 0.8:
        q = rng.choice([f"Tell me about {n}.", f"What do you know about {n}?", f"Tell me something about {n}."])
        return q, f"{capital} is {what}. {more}."
    return f"Answer in one sentence: what is {n}?", f"{capital} is {what}."
