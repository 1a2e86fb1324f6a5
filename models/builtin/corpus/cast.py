"""Who the stories are about, where they live, and what they own.

Every singular "he", "she" or "it" of a story is its hero or a thing; helpers are called by name, so that the pronouns
stay clear.
"""

ANIMALS = '''fox bear cat dog rabbit mouse lion wolf frog duck owl goose pig goat horse donkey squirrel hedgehog turtle
elephant monkey tiger penguin crow swan deer beaver badger otter mole hen rooster sheep lamb pony kitten puppy parrot
snail bee ant spider butterfly ladybug cricket lizard snake crocodile giraffe zebra kangaroo koala panda camel seal crab
sparrow robin raccoon hamster toad eagle pigeon cow rat bat hippo rhino gorilla moose gecko peacock ostrich flamingo
pelican stork heron dove falcon gull lynx leopard
cheetah jackal hyena llama yak buffalo platypus sloth lemur ferret weasel newt salamander iguana worm moth dragonfly
cicada wasp'''.split()
SEA_ANIMALS = 'whale dolphin fish octopus shark turtle seal crab starfish'.split()
CHILDREN = {'girl': 'she', 'boy': 'he', 'princess': 'she', 'prince': 'he', 'child': None, 'twin': None}
GROWN = {'king': 'he', 'queen': 'she', 'baker': None, 'farmer': None, 'sailor': None, 'wizard': 'he', 'witch': 'she',
         'knight': None, 'fisherman': 'he', 'shepherd': None, 'gardener': None, 'teacher': None, 'painter': None,
         'clockmaker': None, 'tailor': None, 'miller': None, 'pirate': None, 'doctor': None, 'cook': None,
         'giant': None,
         'grandmother': 'she', 'grandfather': 'he', 'woodcutter': None, 'musician': None, 'postman': 'he',
         'captain': None, 'nurse': None, 'pilot': None,
         'firefighter': None, 'policeman': 'he', 'clown': None, 'magician': None, 'inventor': None, 'scientist': None,
         'astronaut': None, 'hunter': None, 'monk': 'he', 'soldier': None, 'merchant': None, 'writer': None,
         'dancer': None,
         'singer': None, 'carpenter': None, 'blacksmith': 'he', 'man': 'he', 'woman': 'she', 'mother': 'she',
         'father': 'he', 'beggar': None, 'hermit': None, 'traveller': None, 'student': None}
FABLED = {'dragon': None, 'robot': None, 'fairy': 'she', 'ghost': None, 'unicorn': None, 'mermaid': 'she', 'elf': None,
          'dwarf': 'he', 'troll': 'he', 'snowman': 'he', 'monster': None, 'dinosaur': None, 'alien': None,
          'goblin': None,
          'vampire': None, 'wolf cub': None, 'phoenix': None, 'sea monster': None, 'superhero': None, 'ninja': None,
          'cowboy': 'he', 'viking': None, 'gnome': None, 'zombie': None, 'yeti': None, 'bear cub': None,
          'baby dragon': None}

TRAITS = '''brave little shy clever kind curious lonely young old small lazy proud funny quiet gentle cheerful sleepy
hungry friendly tiny big wise playful stubborn honest grumpy happy sad careful busy silly polite'''.split()
HE_NAMES = '''Tom Max Sam Leo Ben Finn Oscar Pip Rusty Hugo Milo Otto Felix Jack Theo Bruno Toby Henry Jasper Noah
Oliver
Peter Charlie Freddy George Louis Simon Walter Arthur Basil'''.split()
SHE_NAMES = '''Lily Mia Anna Rosie Ella Nora Ruby Clara Daisy Molly Ivy Luna Emma Zoe Tilly Hazel Greta Lucy Alice Bella
Poppy Sophie Martha Olive Penny Stella Wendy Maya Holly Flora'''.split()

# Behind "lived" and before a comma.
PLACES = {
    'wood': ['in a green forest', 'at the edge of a dark forest', 'in a deep wood', 'in a forest of tall pine trees',
             'in a hollow tree', 'under the roots of an old oak'],
    'hill': ['on a sunny hill', 'in a quiet valley', 'at the foot of a high mountain', 'in a valley between two hills',
             'in a cave on the hill'],
    'water': ['by a wide river', 'beside a blue lake', 'near a little pond', 'by a clear stream',
    'in a cottage by the river'],
    'sea': ['by the sea', 'on a small island', 'in a house near the beach', 'in a town by the sea'],
    'town': ['in a small village', 'in a quiet town', 'in a little house with a red roof', 'in a street of old houses',
             'in a busy town', 'in a house next to the school'],
    'farm': ['on a farm', 'in a barn', 'on a farm behind the hills', 'near a big meadow'],
    'far': ['in a land far away', 'in an old castle', 'in a tower on a hill', 'in a kingdom by the sea',
    'in a cold country in the north'],
    'deep': ['in the deep blue sea', 'in a warm bay', 'among the rocks under the sea', 'near a coral reef'],
}
HABITS = ['liked to sit in the sun', 'loved to walk in the fields', 'sang a song every morning',
    'liked to watch the clouds',
          'loved to hear the birds', 'had a warm bed and a good heart', 'worked hard every day',
          'liked to look at the stars at night',
          'knew every path and every stone there', 'loved to ask questions', 'liked to collect shiny stones',
          'had many dreams',
          'loved the smell of rain', 'always wore a blue scarf', 'liked to laugh', 'got up early every day',
          'loved to tell jokes',
          'always said good morning to everyone', 'liked to help others', 'loved to play games',
          'counted the stars before going to sleep']
SEA_HABITS = ['loved to swim in the waves', 'liked to watch the boats', 'sang a song every morning',
    'loved to play among the rocks',
              'liked to collect shells', 'had many dreams', 'liked to look at the moon', 'loved to ask questions',
              'liked to help others']

# What can be lost, broken or given.
THINGS = '''kite ball key hat scarf bell drum book boat doll lantern spoon whistle blanket button ring map coin basket
cup flute toy watch umbrella teddy pencil wagon'''.split()
COLOURS = 'red blue green yellow golden silver white little old new wooden shiny'.split()
FOODS = ['apples', 'berries', 'nuts', 'bread', 'honey', 'pears', 'carrots', 'cherries', 'cakes', 'plums', 'soup',
    'cookies']
FRUIT = ['apples', 'berries', 'nuts', 'pears', 'carrots', 'cherries', 'plums', 'mushrooms']
HIDING = ['under a bush', 'in a hollow tree', 'behind a big stone', 'in the tall grass', 'at the edge of the pond',
    'under the bridge',
          'on the roof of the barn', 'in a bird\'s nest', 'under a pile of leaves', 'beside the well',
          'behind the old mill', 'at the top of a tree']
DAYS = ['One day', 'One morning', 'One afternoon', 'One sunny day', 'One cold morning', 'One windy day',
    'One evening', 'One spring day',
        'One summer day', 'One autumn day', 'One rainy day', 'Early one morning']
SKILLS = {  # after "to": (what it takes, what is done well in the end)
    'swim': ('in the pond', 'swam across the whole pond'), 'sing': ('in the meadow',
    'sang so well that all the birds listened'),
    'dance': ('under the trees', 'danced better than anyone had ever seen'),
    'paint': ('in the garden', 'painted a picture of the rising sun'),
    'climb': ('on the rocks', 'climbed to the top of the hill'), 'read': ('in the school', 'read a whole book aloud'),
    'bake bread': ('in the kitchen', 'baked a loaf that smelled wonderful'),
    'skate': ('on the frozen lake', 'skated in a perfect circle'),
    'play the flute': ('behind the house', 'played a tune that made everyone smile'),
    'whistle': ('on the hill', 'whistled a clear, happy tune'),
    'juggle': ('in the yard', 'juggled five apples at once'), 'jump': ('in the field', 'jumped over the widest ditch'),
    'count': ('by the river', 'counted all the stars above the hill'),
    'draw': ('in the sand', 'drew a ship with white sails'),
    'build': ('near the stream', 'built a strong little bridge'),
    'fly a kite': ('on the hill', 'made the kite rise high above the clouds'),
}
FEARS = {  # after "afraid of": (where it comes, what it turns out to be, said of it)
    'the dark': ('When the sun went down', 'the dark was full of stars'),
    'thunder': ('When black clouds came', 'thunder was only a big noise'),
    'the water': ('When the others went to swim', 'the water was cool and friendly'),
    'the wind': ('When the trees began to shake', 'the wind only wanted to play'),
    'high places': ('When the others climbed the hill', 'the world looked beautiful from above'),
    'the forest': ('When the path went between the trees', 'the forest was full of small, kind animals'),
    'the snow': ('When the first snow fell', 'the snow was soft and quiet'),
    'strangers': ('When someone new came along', 'a stranger was only a friend not yet met'),
    'spiders': ('When a spider came by', 'a spider is small and shy'),
    'ghosts': ('When the old house creaked', 'there was no ghost at all'),
    'fire': ('When someone lit a candle', 'a small flame can be a friend'),
    'dogs': ('When a dog barked', 'the dog only wanted to play'),
    'bees': ('When a bee came near', 'the bee only wanted the flowers'),
    'monsters': ('When the door creaked at night', 'there were no monsters at all'),
    'flying': ('When the birds rose into the air', 'the sky was wide and beautiful'),
    'cats': ('When a cat came around the corner', 'the cat only wanted to sleep in the sun'),
    'being alone': ('When everyone had left', 'nobody is alone who has a friend'),
    'the moon': ('When the full moon rose', 'the moon smiled down like a friend'),
    'school': ('When the school bell rang', 'the school was full of new friends'),
    'mice': ('When a mouse ran by', 'the mouse was much more afraid'),
    'swimming': ('When the others jumped into the lake', 'the water carried everyone who trusted it'),
    'the sea': ('When the waves came close', 'the sea was singing an old song'),
    'snakes': ('When the grass moved', 'the snake was only a piece of rope'),
    'wolves': ('When something howled far away', 'the wolf was singing to the moon'),
    'loud noises': ('When the big bell rang', 'the bell had a lovely voice'),
    'the night': ('When the night came', 'the night was quiet and kind'),
}

# Things that are heroes: where they are, who would need them, and what they do.
LIVE_THINGS = {
    'kite': ('lay in a box under the stairs', 'fly', 'The wind lifted the kite higher and higher'),
    'boat': ('lay on the beach', 'sail', 'The waves carried the boat across the bay'),
    'lamp': ('stood in a dark corner', 'shine', 'The light of the lamp filled the whole room'),
    'lighthouse': ('stood on a lonely rock', 'shine', 'Its bright light showed a ship the way home'),
    'tree': ('stood alone on a hill', 'give shade', 'The children sat in its shade and laughed'),
    'star': ('hung in a corner of the sky', 'shine', 'Its light showed a lost child the way home'),
    'cloud': ('floated over a dry land', 'bring rain', 'The rain fell softly and the flowers opened'),
    'clock': ('hung on the wall of an old house', 'tell the time', 'The clock struck twelve, loud and clear'),
    'train': ('stood in a dusty shed', 'travel', 'The train rolled over the hills with a happy whistle'),
    'teapot': ('stood on a high shelf', 'pour tea', 'The warm tea made everyone smile'),
    'drum': ('lay in an attic', 'make music', 'The beat of the drum made the whole street dance'),
    'bell': ('hung in an old tower', 'ring', 'The bell rang out over the roofs'),
    'umbrella': ('stood behind a door', 'keep someone dry', 'Not a drop of rain came through'),
    'pencil': ('lay at the bottom of a drawer', 'draw', 'The pencil drew a house, a sun and a tree'),
    'book': ('stood on a dusty shelf', 'be read', 'Its story was read aloud, and everyone listened'),
    'candle': ('lay in a kitchen drawer', 'give light', 'The small flame lit up the dark room'),
    'ball': ('lay under a bench', 'bounce', 'The ball flew from hand to hand'),
    'teddy bear': ('sat on a shelf in a toy shop', 'be hugged', 'Two small arms held the teddy bear tight'),
    'doll': ('sat in an old chest', 'be loved', 'Two small hands combed its hair'),
    'balloon': ('hung on a string in a shop', 'fly', 'The balloon rose above the houses'),
    'car': ('stood in a dusty garage', 'drive', 'The car rolled down the road in the sun'),
    'bus': ('stood at the end of the road', 'travel', 'The bus carried singing children to the sea'),
    'ship': ('lay in the harbour', 'sail', 'The wind filled the sails, and the ship flew over the waves'),
    'bridge': ('stood over a quiet stream', 'be useful', 'Everyone could cross the high water on its strong back'),
    'bicycle': ('leaned against a garden wall', 'ride', 'The wheels sang on the road'),
    'flower': ('grew in a crack of the wall', 'bloom', 'Its petals opened, and the bees came'),
    'spoon': ('lay at the back of a drawer', 'be useful', 'The soup tasted better than ever'),
    'violin': ('lay in a dark case', 'make music', 'Its song was so sweet that people stopped in the street'),
    'rocket': ('stood behind a shed', 'fly', 'The rocket rose to the moon and came back'),
    'house': ('stood empty at the end of the village', 'be a home', 'A family moved in, and the windows glowed'),
    'key': ('hung on a rusty nail', 'open something', 'The key turned, and the old door opened'),
    'coat': ('hung in a dark cupboard', 'keep someone warm', 'It was worn all winter long'),
    'snowflake': ('hung high in a grey cloud', 'fall', 'The snowflake danced down and landed on a warm hand'),
    'raindrop': ('hung in a dark cloud', 'fall', 'The raindrop fell on a thirsty flower'),
    'leaf': ('hung on a high branch', 'fly', 'The wind carried the leaf over the fields'),
    'stone': ('lay at the side of a path', 'be useful', 'It became the first stone of a new house'),
    'pumpkin': ('grew behind a barn', 'shine', 'With a candle inside, the pumpkin glowed in the night'),
    'windmill': ('stood still on a hill', 'turn', 'The wind came, and its arms turned and turned'),
    'guitar': ('stood in a corner', 'make music', 'Its song made everyone sing'),
    'moon': ('hung alone in the sky', 'shine', 'Its silver light lay on the whole world'),
}

# Things without a use of their own above.
PLAIN_THINGS = '''shoe sock hat chair table cup pot button mirror box bag wheel rope broom pen brush ladder window door
cactus mushroom potato carrot apple pear cookie cake pizza sandwich castle island mountain river computer phone camera
blanket pillow basket bucket scarf glove ring coin map stamp letter feather shell pebble seed nut plate bowl fork bottle
tractor truck plane helicopter submarine lantern trumpet piano flute kettle toaster fridge sofa suitcase
backpack tent sled slide swing puzzle marble crayon paintbrush bench statue fountain tower telescope magnet
lemon pineapple banana strawberry cherry onion tomato pea bean sunflower rose tulip daisy rainbow planet comet
volcano'''.split()
PLAIN_WHERE = ['stood in a quiet corner', 'lay under a big tree', 'stood behind an old house',
    'lay at the side of a road', 'stood at the edge of a garden']
PLAIN_USE = ('be useful', 'It was just what was needed')
THING_TRAITS = '''little old lonely forgotten magic red blue green golden silver broken tiny big sad new wooden shiny
lost brave'''.split()
