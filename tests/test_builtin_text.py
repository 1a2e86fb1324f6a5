"""The training text of the built-in model and the judge of its answers: models/builtin/corpus and check.py.

Run by plain python3, with the path of models/builtin. The seed of what is drawn is printed.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from hashlib import sha256
from random import Random

BUILTIN = os.path.abspath(sys.argv.pop(1) if len(sys.argv) > 1 and os.path.isdir(sys.argv[1]) else
                          os.path.join(os.path.dirname(__file__), '..', 'models', 'builtin'))
sys.dont_write_bytecode = True
sys.path.insert(0, BUILTIN)

import check                                                                    # noqa: E402
from corpus import about_quern, animals, arithmetic, facts, followups, instructions    # noqa: E402
from corpus import plots, stories, talk, words                                  # noqa: E402
from corpus.mixture import document, exchange                                   # noqa: E402
from corpus.wording import Grammar, expansions, letters_of, speaker             # noqa: E402

SEED = int.from_bytes(os.urandom(3), 'big')
MODULES = (about_quern, animals, arithmetic, facts, followups, instructions, stories, talk, words)


def grammars_of_questions():
    for module in MODULES:
        for name, value in vars(module).items():
            if isinstance(value, Grammar) and name.startswith(('ASK', 'AND', 'AGAIN')):
                yield '%s.%s' % (module.__name__, name), value
    for one in facts.SINGLES:
        yield one.answer, one.ask
    for row in talk.ROWS:
        yield row[0], Grammar(*row[3:])
    for row in about_quern.ROWS:
        yield row[0], Grammar(*about_quern.lines_of(row))


def prompt_for(kind, prompt, answer, judge):
    return {'kind': kind, 'prompt': prompt, 'answer': answer, 'judge': judge}


def exchanges(split, n, seed=SEED):
    speak = speaker(seed, split)
    return [exchange(speak) for _ in range(n)]


def story_of(text, **must):
    return prompt_for('story', 'Tell me a story.', text, {'rule': 'story', 'all': [], **must})


class Text(unittest.TestCase):
    def test_a_seed_gives_the_same_documents_and_another_gives_others(self):
        def documents(seed):
            speak = speaker(seed, 'train')
            return [document(speak) for _ in range(200)]
        self.assertEqual(documents(SEED), documents(SEED))
        self.assertNotEqual(documents(SEED), documents(SEED + 1))

    def test_the_text_is_the_one_that_the_shipped_model_was_trained_on(self):
        # Whoever changes the text trains the model anew, and then writes the new checksum here.
        speak, checksum = speaker(1, 'train'), sha256()
        for _ in range(3000):
            checksum.update((json.dumps(document(speak), ensure_ascii=False) + '\n').encode())
        self.assertEqual(checksum.hexdigest(), '9e4845d40344e2f861056f530ffdf419d792712e659b2cb8e0c5da25b5fcc1fa')

    def test_every_question_has_wordings_of_both_splits(self):
        for name, grammar in grammars_of_questions():
            wordings = {letters_of(text) for parts in grammar.lines for text in expansions(parts)}
            self.assertTrue(grammar.held_out, name)
            self.assertTrue(wordings - set(grammar.held_out), name)

    def test_training_never_uses_a_held_out_wording(self):
        train, held_out = speaker(SEED, 'train'), speaker(SEED, 'heldout')
        for name, grammar in grammars_of_questions():
            for _ in range(60):
                self.assertNotIn(letters_of(train.wording(grammar)), grammar.held_out, name)
                self.assertIn(letters_of(held_out.wording(grammar)), grammar.held_out, name)

    def test_subjects_of_stories_of_more_than_two_words_are_of_one_split(self):
        train = {stories.tell(speak)[0] for speak in [speaker(SEED, 'train')] for _ in range(4000)}
        held_out = {stories.tell(speak)[0] for speak in [speaker(SEED, 'heldout')] for _ in range(1000)}
        self.assertEqual([both for both in train & held_out if both.count(' ') >= 2], [])

    def test_documents_are_whole_dialogues_without_traces_of_the_grammar(self):
        speak = speaker(SEED, 'train')
        for _ in range(4000):
            made = document(speak)
            said = [message['content'] for message in made.get('messages', [])] or [made['text']]
            for text in said:
                self.assertTrue(text.strip(), made)
                self.assertNotRegex(text, r'[{}\[\]|\0]|\(n\)|  ')
            roles = [message['role'] for message in made.get('messages', [])]
            roles = roles[1:] if roles[:1] == ['system'] else roles
            self.assertEqual(roles, ['user', 'assistant'] * (len(roles) // 2))

    def test_sums_are_right(self):
        signs = {'plus': int.__add__, 'minus': int.__sub__, 'times': int.__mul__, 'divided by': int.__floordiv__}
        speak = speaker(SEED, 'train')
        for _ in range(3000):
            answer = arithmetic.sums(speak).answer
            a, sign, b, value = re.fullmatch(r'(\d+) ([a-z ]+) (\d+) is (-?\d+)\.', answer).groups()
            self.assertEqual(signs[sign](int(a), int(b)), int(value), answer)

    def test_tables_agree_with_each_other(self):
        self.assertEqual(set(facts.CAPITALS) - set(facts.CONTINENT_OF) - {'Russia', 'Turkey', 'Australia',
        'New Zealand',
                                                                          'the USA', 'America'}, set())
        for plot in stories.PLOTS_BY_NAME.values():
            self.assertIn(plot.name, plots.THEME_WORDS)
        for said, name in animals.SAYS.items():
            self.assertEqual(animals.ANIMALS[name][0], said)
        for baby, name in animals.BABY_OF.items():
            self.assertEqual(animals.ANIMALS[name][1], baby)
        for home, name in animals.LIVES_IN.items():
            self.assertEqual(animals.ANIMALS[name][2], home)
        self.assertEqual([word for word, other in words.OPPOSITES.items() if word == other], [])

    def test_stories_have_the_length_of_a_short_story(self):
        speak = speaker(SEED, 'train')
        lengths = [len(stories.tell(speak)[1].split()) for _ in range(2000)]
        self.assertGreater(min(lengths), 55)
        self.assertLess(max(lengths), 200)


class Judge(unittest.TestCase):
    def wrong(self, prompt, *answers):
        for answer in answers:
            self.assertIsNotNone(check.fault_of(answer, prompt), answer)

    def right(self, prompt, *answers):
        for answer in answers:
            self.assertIsNone(check.fault_of(answer, prompt), answer)

    def test_what_training_would_say_is_right(self):
        for one in exchanges('heldout', 3000):
            self.right(prompt_for(one.kind, one.prompt, one.answer, one.judge), one.answer)

    def test_the_answer_to_another_question_of_the_same_kind_is_wrong(self):
        for kind, maker in (('capital', facts.capital), ('sum', arithmetic.sums), ('colour', facts.colour),
        ('young', animals.young),
                            ('shorter', instructions.shorter), ('quern', about_quern.about_quern),
                                ('fact', facts.single)):
            speak = speaker(SEED, 'heldout')
            drawn = [maker(speak) for _ in range(300)]
            passed = 0
            for one, other in zip(drawn, drawn[1:]):
                if one.answer != other.answer:
                    passed += check.fault_of(other.answer, prompt_for(kind, one.prompt, one.answer, one.judge)) is None
            self.assertLessEqual(passed, 5, kind)    # such as "7 plus 3 is 10" for 3 plus 7

    def test_a_capital(self):
        prompt = prompt_for('capital', 'Capital of France?', 'The capital of France is Paris.',
                            {'rule': 'says', 'want': ['Paris'], 'family': 'cities'})
        self.right(prompt, 'The capital of France is Paris.', 'Paris.', 'It is Paris.',
        'Paris is the capital of France.')
        self.wrong(prompt, '', 'The capital of France is Rome.', 'Paris or Rome.', 'The capital of Spain is Paris.',
        'France.',
                   'The capital of France is Parish.', 'The capital of France is Paris. ' * 4)

    def test_an_opposite(self):
        prompt = prompt_for('opposite', 'opposite of hot', 'The opposite of hot is cold.',
                            {'rule': 'says', 'want': ['cold'], 'family': 'opposites', 'given': 'hot'})
        self.right(prompt, 'The opposite of hot is cold.', 'Cold.', 'Cold is the opposite of hot.')
        self.wrong(prompt, 'The opposite of hot is hot.', 'The opposite of hot is big.',
        'The opposite of cold is hot.', 'Cold or wet.')

    def test_a_sum(self):
        prompt = prompt_for('sum', "what's 3+4?", '3 plus 4 is 7.',
        {'rule': 'number', 'want': 7, 'given': [3, 4], 'sign': 'plus'})
        self.right(prompt, '3 plus 4 is 7.', '7', 'Seven.', '3 + 4 = 7', 'three plus four is seven')
        self.wrong(prompt, '3 plus 4 is 8.', '3 plus 5 is 7.', '3 times 4 is 7.', '3 plus 4 is 17.', '7 is 3 plus 4.',
        'I do not know.')

    def test_lists_counts_and_letters(self):
        fruits = prompt_for('list', 'List three fruits.', 'Apple, banana and cherry.',
        {'rule': 'list', 'of': 'fruits', 'count': 3})
        self.right(fruits, 'Apple, banana and cherry.', 'pear, plum, grape')
        self.wrong(fruits, 'Apple and banana.', 'Apple, apple and pear.', 'Apple, carrot and pear.',
        'Apple, banana, cherry and pear.')
        count = prompt_for('count', 'Count to five.', '1, 2, 3, 4, 5.', {'rule': 'numbers', 'want': [1, 2, 3, 4, 5]})
        self.right(count, '1, 2, 3, 4, 5.', 'One, two, three, four, five.')
        self.wrong(count, '1, 2, 3, 4.', '1, 2, 4, 3, 5.', '1, 2, 3, 4, 5, 6.')
        spell = prompt_for('spell', 'Spell cat.', 'C-A-T', {'rule': 'letters', 'want': 'cat'})
        self.right(spell, 'C-A-T', 'c a t', 'C, A, T.')
        self.wrong(spell, 'cat', 'C-A-R', 'C-A', 'C-A-T-S')

    def test_what_must_be_repeated_or_made_shorter(self):
        repeat = prompt_for('repeat', 'Say: Hello world', 'Hello world', {'rule': 'same', 'want': 'Hello world'})
        self.right(repeat, 'Hello world', '"Hello world"', 'Hello world.')
        self.wrong(repeat, 'hello world', 'Hello', 'Hello world hello')
        long = 'The very old dog slept all day long near the big house.'
        shorter = prompt_for('shorter', 'Make this shorter: ' + long, 'The dog slept near the house.',
                             {'rule': 'shorter', 'of': long, 'keep': ['dog', 'slept', 'house']})
        self.right(shorter, 'The dog slept near the house.', 'The old dog slept near the house.')
        self.wrong(shorter, long, 'The dog slept.', 'The cat slept near the house.', 'The house slept near the dog.')
        first = prompt_for('sentence', 'Use dog in a sentence.', 'The old dog sat near the house.',
        {'rule': 'sentence', 'word': 'dog'})
        self.right(first, 'The old dog sat near the house.')
        self.wrong(first, 'The cat sat near the house.', 'dog', 'The dog sat near', 'The dog sat. The cat ran.')

    def test_choices_and_rhymes(self):
        compare = prompt_for('compare', 'Which is bigger, 3 or 9?', '9 is greater than 3.',
        {'rule': 'first_number', 'want': 9, 'given': [3, 9]})
        self.right(compare, '9 is greater than 3.', '9')
        self.wrong(compare, '3 is greater than 9.', '9 is greater than 4.', 'nothing')
        size = prompt_for('size', 'Which is bigger, a cat or a horse?', 'A horse is bigger than a cat.',
        {'rule': 'starts', 'want': 'a horse'})
        self.right(size, 'A horse is bigger than a cat.', 'A horse.')
        self.wrong(size, 'A cat is bigger than a horse.', 'A cow is bigger than a cat.')
        rhyme = prompt_for('rhyme', 'What rhymes with cat?', 'Hat rhymes with cat.', {'rule': 'rhymes', 'given': 'cat'})
        self.right(rhyme, 'Hat rhymes with cat.', 'bat')
        self.wrong(rhyme, 'Cat rhymes with cat.', 'Dog rhymes with cat.')

    def test_a_story_must_be_whole_and_consistent(self):
        speak, tried = speaker(SEED, 'heldout'), 0
        while tried < 150:
            subject, text, must = stories.tell(speak)
            prompt = story_of(text, **must)
            self.right(prompt, text)
            spoilt = [text.removesuffix(' The end.'), text[:len(text) // 2], text.replace(' the ', ' the the ', 1),
            text.replace(' and ', ' andy '),
                      text + ' ' + text, 'Once upon a time. The end.', text[0].lower() + text[1:],
                      text.replace('."', '.', 1)]
            self.wrong(prompt, *[other for other in spoilt if other != text])
            tried += 1

    def test_a_story_must_keep_to_its_subject_and_its_pronouns(self):
        speak, seen = speaker(SEED, 'heldout'), 0
        while seen < 100:
            subject, text, must = stories.tell(speak)
            narrated = re.sub(r'"[^"]*"', '', text)
            if must['all'] and ' he ' in narrated:
                seen += 1
                if narrated.count(' he ') > 1:
                    self.wrong(story_of(text, **must), text.replace(' he ', ' she ', 1))
                self.wrong(story_of(text, **{**must, 'all': ['submarine captain']}), text)

    def test_loops_are_found(self):
        sentence = 'the fox went down to the old blue river. '
        self.assertIsNotNone(check.loop_in(sentence * 3))
        self.assertIsNotNone(check.loop_in('and then and then and then and then'))
        self.assertIsNotNone(check.loop_in('no no no no'))
        self.assertIsNone(check.loop_in('very, very, very good'))
        self.assertIsNone(check.loop_in(sentence * 2))
        for one in exchanges('train', 500):
            self.assertIsNone(check.loop_in(one.answer), one.answer)


class Command(unittest.TestCase):
    def run_python(self, *args):
        return subprocess.run([sys.executable, '-B', *args], cwd=BUILTIN, capture_output=True, text=True)

    def test_the_generator_writes_as_many_documents_as_asked_for(self):
        done = self.run_python('-m', 'corpus', '--seed', '7', '--split', 'heldout', '--documents', '50')
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len([json.loads(line) for line in done.stdout.splitlines()]), 50)

    def test_the_judge_passes_right_answers_and_fails_when_one_in_eight_is_wrong(self):
        with tempfile.TemporaryDirectory() as folder:
            prompts, answers = os.path.join(folder, 'prompts'), os.path.join(folder, 'answers')
            self.assertEqual(self.run_python('check.py', 'prompts', '--seed', str(SEED), '--n', '40', '-o',
            prompts).returncode, 0)
            asked = check.read_lines(prompts)
            wrong = set(Random(SEED).sample(range(40), 5))
            for how, status in ((set(), 0), (wrong, 1)):
                with open(answers, 'w') as out:
                    for i, prompt in enumerate(asked):
                        out.write(json.dumps({'id': prompt['id'],
                        'text': 'Bananas.' if i in how else prompt['answer']}) + '\n')
                done = self.run_python('check.py', 'judge', '--prompts', prompts, '--answers', answers)
                self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            self.assertEqual(self.run_python('check.py', 'loops', '--answers', answers).returncode, 0)


if __name__ == '__main__':
    print('seed %d' % SEED, flush=True)
    unittest.main()
