"""A hundred questions in people's own words: written by hand, not drawn from the generator's wordings, to see how far
the model goes beyond them. Each is (question, kind, the answer that training gives, what check.py's judge needs)."""


def _says(answer, *want, **more):
    return answer, {'rule': 'says', 'want': list(want), **more}


def _capital(country, city):
    return _says('The capital of %s is %s.' % (country, city), city, family='cities')


def _opposite(word, *others):
    return _says('The opposite of %s is %s.' % (word, others[0]), *others, family='opposites', given=word)


def _sum(a, sign, b, value):
    return '%d %s %d is %d.' % (a, sign, b, value), {'rule': 'number', 'want': value, 'given': [a, b],
                                                    'sign': sign.split()[0]}


def _colour(thing, colour):
    return _says('%s is %s.' % (thing, colour), colour, family='colours')


def _story(*subjects):
    return 'Once upon a time ... The end.', {'rule': 'story', 'all': list(subjects)}


def _list(of, count):
    return '', {'rule': 'list', 'of': of, 'count': count}


def _counted(*numbers):
    return ', '.join(map(str, numbers)) + '.', {'rule': 'numbers', 'want': list(numbers)}


def _shorter(long, short, *keep):
    return short, {'rule': 'shorter', 'of': long, 'keep': list(keep)}


RUN = _says('Use quern run -m MODEL "your prompt". Without -m it uses the built-in model.', 'quern run')
CHAT = _says('Use quern chat to talk with a model on the terminal. /bye leaves.', 'quern chat')
BATCH = _says('Use quern batch to answer a file of many prompts, a prompt a line.', 'quern batch')
BENCH = _says('Use quern bench to measure how many tokens a second a model makes.', 'quern bench')
LS = _says('Use quern ls to list the models on your disk.', 'quern ls')
WHAT = _says('Quern is one program that runs language models in GGUF files on your own computer.', 'GGUF')
UNKNOWN = _says('I do not know that. I am a very small model.', 'do not know')
HELLO = _says('Hello! How can I help you?', 'hello')
LONG = 'The big brown dog ran very quickly near the old green park.'

QUESTIONS = [
    ('Tell me a story about a fox', 'story', _story('fox')),
    ('tell me a story about a brave girl', 'story', _story('girl')),
    ('story about a lost kite please', 'story', _story('kite')),
    ('Can you tell a bedtime story with a dragon in it?', 'story', _story('dragon')),
    ('I want a story. It should be about a robot.', 'story', _story('robot')),
    ('Once more, a story about a cat and a dog', 'story', _story('cat', 'dog')),
    ('write a fairy tale about a princess', 'story', _story('princess')),
    ('My kid loves whales. Tell us a story!', 'story', _story()),
    ('a tale of an old sailor', 'story', _story('sailor')),
    ('Please could I hear a story about a little bear?', 'story', _story('bear')),
    ('Tell a story about two friends', 'story', _story()),
    ('Tell me a story about a mouse who is afraid of the dark', 'story', _story('mouse')),
    ('capital of japan', 'capital', _capital('Japan', 'Tokyo')),
    ("What's France's capital city called?", 'capital', _capital('France', 'Paris')),
    ('Which city is the capital of Egypt please?', 'capital', _capital('Egypt', 'Cairo')),
    ('italy capital?', 'capital', _capital('Italy', 'Rome')),
    ('Do you happen to know the capital of Norway?', 'capital', _capital('Norway', 'Oslo')),
    ("I forgot what the capital of Canada is", 'capital', _capital('Canada', 'Ottawa')),
    ('Name the capital city of Spain', 'capital', _capital('Spain', 'Madrid')),
    ('whats the capital of australia', 'capital', _capital('Australia', 'Canberra')),
    ('opposite of hot', 'opposite', _opposite('hot', 'cold')),
    ("What's the opposite of up?", 'opposite', _opposite('up', 'down')),
    ('Give me the opposite of the word big', 'opposite', _opposite('big', 'small', 'little')),
    ('what word is opposite to happy', 'opposite', _opposite('happy', 'sad', 'unhappy')),
    ('If it is not fast, it is ...? Tell me the opposite of fast.', 'opposite', _opposite('fast', 'slow')),
    ('antonym for rich', 'opposite', _opposite('rich', 'poor')),
    ("what's 3+4?", 'sum', _sum(3, 'plus', 4, 7)),
    ('2+2', 'sum', _sum(2, 'plus', 2, 4)),
    ('How much is seven plus five?', 'sum', _sum(7, 'plus', 5, 12)),
    ('Compute 9 - 4 for me', 'sum', _sum(9, 'minus', 4, 5)),
    ('what is 6 times 7', 'sum', _sum(6, 'times', 7, 42)),
    ('Add 8 and 6 please', 'sum', _sum(8, 'plus', 6, 14)),
    ('5 x 5 = ?', 'sum', _sum(5, 'times', 5, 25)),
    ('I have 10 apples and eat 3. How many do I have now?', 'sum', _sum(10, 'minus', 3, 7)),
    ('12 divided by 4', 'sum', _sum(12, 'divided by', 4, 3)),
    ('can u do 1+1', 'sum', _sum(1, 'plus', 1, 2)),
    ('half of ten?', 'half', ('Half of 10 is 5.', {'rule': 'number', 'want': 5, 'given': [10]})),
    ('which number comes after 9', 'next', ('The number after 9 is 10.', {'rule': 'number', 'want': 10, 'given': [9]})),
    ('what is bigger: 5 or 8?', 'compare',
     ('8 is greater than 5.', {'rule': 'first_number', 'want': 8, 'given': [5, 8]})),
    ('what colour is the sky', 'colour', _colour('The sky', 'blue')),
    ('Tell me the color of a banana', 'colour', _colour('A banana', 'yellow')),
    ('Grass has which colour?', 'colour', _colour('Grass', 'green')),
    ('what color is snow, please?', 'colour', _colour('Snow', 'white')),
    ('what do you get by mixing blue and yellow', 'mix', _says('Blue and yellow make green.', 'green')),
    ('What does a cow say?', 'sound', _says('A cow goes "moo".', 'moo', family='sounds')),
    ('what noise do ducks make', 'sound', _says('A duck goes "quack".', 'quack', family='sounds')),
    ('how many legs has a spider got', 'legs', _says('A spider has eight legs.', 'eight', '8', family='numbers')),
    ('Number of legs of a dog?', 'legs', _says('A dog has four legs.', 'four', '4', family='numbers')),
    ("what's the name for a baby cat", 'young', _says('A baby cat is called a kitten.', 'kitten', family='young')),
    ('where do bees live?', 'home', _says('A bee lives in a hive.', 'hive', family='homes')),
    ('what do rabbits eat', 'food', _says('A rabbit eats grass and carrots.', 'grass and carrots')),
    ('is a whale a fish?', 'class', _says('A whale is a mammal.', 'mammal', 'no')),
    ('plural of mouse', 'plural', _says('The plural of mouse is mice.', 'mice')),
    ('one child, many ...', 'plural', _says('The plural of child is children.', 'children')),
    ('What rhymes with cat', 'rhyme', ('Hat rhymes with cat.', {'rule': 'rhymes', 'given': 'cat'})),
    ('past tense of go', 'past', _says('The past tense of go is went.', 'went')),
    ('what day comes after monday', 'calendar', _says('Tuesday comes after Monday.', 'Tuesday', family='calendar')),
    ('How many days in a week?', 'fact', _says('There are seven days in a week.', 'seven')),
    ('Name the four seasons', 'fact', _says('The four seasons are spring, summer, autumn and winter.', 'autumn')),
    ('why is the sky blue', 'fact', _says('The sky is blue because the air scatters blue light the most.', 'light')),
    ('largest planet?', 'fact', _says('The biggest planet is Jupiter.', 'Jupiter')),
    ('How many sides does a triangle have', 'fact', _says('A triangle has three sides.', 'three')),
    ('who makes honey', 'fact', _says('Bees make honey.', 'bees')),
    ('what is a knife used for', 'use', _says('We use a knife to cut things.', 'cut things')),
    ('count to five', 'count', _counted(1, 2, 3, 4, 5)),
    ('Could you count up to 8 for me?', 'count', _counted(*range(1, 9))),
    ('count down from 4', 'count', _counted(4, 3, 2, 1)),
    ('list three fruits', 'list', _list('fruits', 3)),
    ('give me two animals', 'list', _list('animals', 2)),
    ('Name 3 colours', 'list', _list('colours', 3)),
    ('make this shorter: ' + LONG, 'shorter', _shorter(LONG, 'The dog ran near the park.', 'dog', 'ran', 'park')),
    ('Please shorten the sentence: The old man slept all day long by the warm window.', 'shorter',
     _shorter('The old man slept all day long by the warm window.', 'The man slept by the window.', 'man', 'slept',
              'window')),
    ('repeat after me: I like trees', 'repeat', ('I like trees', {'rule': 'same', 'want': 'I like trees'})),
    ('Say hello world', 'repeat', ('hello world', {'rule': 'same', 'want': 'hello world'})),
    ('spell dog', 'spell', ('D-O-G', {'rule': 'letters', 'want': 'dog'})),
    ('How is the word house spelled?', 'spell', ('H-O-U-S-E', {'rule': 'letters', 'want': 'house'})),
    ('say good morning in capital letters', 'shout', ('GOOD MORNING', {'rule': 'same', 'want': 'GOOD MORNING'})),
    ('reverse: red blue green', 'reverse', ('green, blue, red', {'rule': 'words', 'want': ['green', 'blue', 'red']})),
    ('sort 7 2 5', 'sort', _counted(2, 5, 7)),
    ('finish the sentence: the sun rises in the', 'finish', _says('The sun rises in the east.', 'east')),
    ('hello', 'greeting', HELLO),
    ('Hi there!', 'greeting', HELLO),
    ('good morning', 'greeting', HELLO),
    ('thank you so much', 'thanks', _says('You are welcome!', 'welcome')),
    ('bye!', 'goodbye', _says('Goodbye! Have a nice day.', 'goodbye')),
    ('who are you', 'who',
     _says("I am quern's built-in model, a very small language model made by the quern project.", 'quern')),
    ('what can you do for me?', 'can',
     _says('I can tell short stories, answer simple questions, do small sums and explain quern.', 'stories')),
    ('What is quern?', 'quern', WHAT),
    ('explain to me what quern is', 'quern', WHAT),
    ('How do I run a model with quern?', 'quern', RUN),
    ('how to chat', 'quern', CHAT),
    ('how can i run lots of prompts from a file', 'quern', BATCH),
    ('how do I measure how fast my model is?', 'quern', BENCH),
    ('show my models', 'quern', LS),
    ('what does -n do', 'quern', _says('-n N sets how many tokens to generate at most.', '-n')),
    ('how can I make quern use 4 threads', 'quern',
     _says('-t N sets the number of threads. 0 takes as many as the machine allows.', '-t')),
    ('What does exit code 3 mean?', 'quern', _says('Exit code 3 means a bad model file.', 'model')),
    ('licence of quern?', 'quern', _says('Quern is free software under the MIT licence.', 'MIT')),
    ('Who was Napoleon?', 'unknown', UNKNOWN),
    ('What will the weather be tomorrow?', 'unknown', UNKNOWN),
]


def prompts():
    return [{'id': 'own-%03d' % i, 'kind': kind, 'prompt': question, 'answer': answer, 'judge': judge}
            for i, (question, kind, (answer, judge)) in enumerate(QUESTIONS)]
