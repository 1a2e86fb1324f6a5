"""Small arithmetic in digits and in words: sums, differences, products, quotients, comparing, counting on."""

from .wording import TELL_ME, TELL_WHAT, Exchange, Grammar, capital_first

SMALL = ('zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen '
         'seventeen eighteen nineteen').split()
TENS = '- - twenty thirty forty fifty sixty seventy eighty ninety'.split()


def in_words(n):
    if n < 20:
        return SMALL[n]
    if n < 100:
        return TENS[n // 10] + ('-' + SMALL[n % 10] if n % 10 else '')
    hundreds = in_words(n // 100) + ' hundred'
    return hundreds + ' and ' + in_words(n % 100) if n % 100 else hundreds


# Questions whose middle is a sum such as "3 plus 4" or "3+4".
ASK_VALUE = Grammar(
    "3: [what is|what's|whats] {sum}?",
    "2: {sum}?",
    "{sum} =", "{sum}=", "{sum}=?", "{sum} = ?",
    "{sum} [= ?|is|equals|is what|equals what|makes what|makes]?",
    "how much is {sum}?",
    "[what does|how much does] {sum} [make|equal|give|come to]?",
    "what do you get [for|from] {sum}?",
    "[can you|could you|please] [work out|calculate|compute|tell me|do|solve] {sum}?",
    "do you know [what|how much] {sum} is?",
    "can you tell me [what|how much] {sum} is?",
    f"{TELL_WHAT} [what|how much] {{sum}} is.",
    "2: [calculate|compute|work out|solve|do|tell me|add up|find|figure out] {sum}.",
    "what is the [result|answer|value] of {sum}?",
    "what is the answer to {sum}?",
    "[I need|give me] the [result|answer|value] of {sum}.",
)
ASK_SUM = Grammar(
    "what is the sum of {a} and {b}?",
    "[add|please add|can you add|add up] {a} and {b}.",
    "add {a} to {b}.",
    "what do you get [if|when] you add {a} and {b}?",
    "how much [is|are] {a} and {b}[| together| added together]?",
    "if I have {a} apples and get {b} more, how many [apples |]do I have?",
    "I have {a} [coins|apples|books|eggs|toys] and [find|get|buy] {b} more. how many [do I have|are there|is that]?",
    "what is {a} and {b}[| together]?",
    "the sum of {a} and {b}[| is| is what]?",
    f"{TELL_ME} the sum of {{a}} and {{b}}.",
    "there are {a} [birds|cats|ducks|children] and {b} more come. how many are there[| now]?",
)
ASK_DIFFERENCE = Grammar(
    "what is the difference between {a} and {b}?",
    "[subtract|take|take away] {b} from {a}.",
    "what do you get [if|when] you [take|subtract] {b} from {a}?",
    "what is {b} less than {a}?",
    "if I have {a} apples and eat {b}, how many [apples |]are left?",
    "I have {a} [coins|apples|books|eggs|toys] and [lose|give away|sell] {b}. how many [are left|do I have left|do I "
    "have]?",
    "there are {a} [birds|cats|ducks|children] and {b} [leave|go away]. how many are left?",
    "how much is {a} take away {b}?",
    "the difference [between|of] {a} and {b}[| is| is what]?",
    f"{TELL_ME} the difference between {{a}} and {{b}}.",
)
ASK_PRODUCT = Grammar(
    "what is the product of {a} and {b}?",
    "multiply {a} [by|and|with] {b}.",
    "[please|can you|could you] multiply {a} by {b}?",
    "what do you get [if|when] you multiply {a} by {b}?",
    "the product of {a} and {b}[| is| is what]?",
    f"{TELL_ME} the product of {{a}} and {{b}}.",
    "how much is {a} multiplied by {b}?",
)
ASK_QUOTIENT = Grammar(
    "divide {a} by {b}.",
    "[please|can you|could you] divide {a} by {b}?",
    "what do you get [if|when] you divide {a} by {b}?",
    "how many times does {b} go into {a}?",
    "how [often|many times] does {b} fit into {a}?",
    "how much is {a} divided by {b}?",
    "share {a} [sweets|apples] among {b} [children|friends]. how many does each get?",
)
SIGNS = {
    'plus': (' plus ', '+', ' + ', '+', ' + ', ' and '),
    'minus': (' minus ', '-', ' - ', '-', ' - ', ' take away ', ' less '),
    'times': (' times ', '*', ' * ', 'x', ' x ', ' multiplied by ', '×'),
    'divided by': (' divided by ', '/', ' / ', ' over ', ' ÷ '),
}
ASK_OWN = {'plus': ASK_SUM, 'minus': ASK_DIFFERENCE, 'times': ASK_PRODUCT, 'divided by': ASK_QUOTIENT}


def _numbers(speak, name):
    """The two numbers and the value. Small numbers are asked more often, for they come more often."""
    def up_to(n):
        return int((n + 1) * speak.rand() ** 1.3)
    if name == 'plus':
        if speak.chance(0.08):
            a, b = 10 * (1 + up_to(8)), 10 * (1 + up_to(8))
        else:
            a, b = up_to(20), up_to(20)
        return a, b, a + b
    if name == 'minus':
        if speak.chance(0.08):
            a, b = sorted((up_to(12), up_to(12)))
            return a, b, a - b
        a = int(21 * speak.rand() ** 0.7)
        b = int((a + 1) * speak.rand())
        return a, b, a - b
    if name == 'times':
        a, b = up_to(12), up_to(12)
        return a, b, a * b
    b, value = 1 + up_to(9), up_to(10)
    return b * value, b, value


def sums(speak):
    name = speak.pick(('plus', 'plus', 'plus', 'minus', 'minus', 'times', 'times', 'divided by'))
    a, b, value = _numbers(speak, name)
    words = speak.chance(0.3)
    shown_a, shown_b = (in_words(a), in_words(b)) if words else (str(a), str(b))
    if speak.chance(0.3):
        prompt = speak.ask(ASK_OWN[name], {'a': shown_a, 'b': shown_b})
    else:
        sign = speak.pick(SIGNS[name])
        if words and len(sign) < 4:
            sign = ' ' + name + ' '
        prompt = speak.ask(ASK_VALUE, {'sum': shown_a + sign + shown_b})
    return Exchange('sum', prompt, f'{a} {name} {b} is {value}.',
                    {'rule': 'number', 'want': value, 'given': [a, b], 'sign': name.split()[0]})


ASK_GREATER = Grammar(
    "3: [which|what] is [bigger|larger|greater|more|higher], {a} or {b}?",
    "[which|what] number is [bigger|larger|greater|higher], {a} or {b}?",
    "[which|what] is the [bigger|larger|greater] [number|one], {a} or {b}?",
    "is {a} or {b} [bigger|larger|greater|more]?",
    "{a} or {b}: [which|what] is [bigger|larger|greater|more]?",
    f"{TELL_WHAT} [which|what] is [bigger|larger|greater], {{a}} or {{b}}.",
)
ASK_SMALLER = Grammar(
    "3: [which|what] is [smaller|less|lower|fewer], {a} or {b}?",
    "[which|what] number is [smaller|lower], {a} or {b}?",
    "[which|what] is the [smaller|lower] [number|one], {a} or {b}?",
    "is {a} or {b} [smaller|less]?",
    "{a} or {b}: [which|what] is [smaller|less|lower]?",
    f"{TELL_WHAT} [which|what] is [smaller|less|lower], {{a}} or {{b}}.",
)


def compare(speak):
    a = int(speak.rand() * 31)
    b = int(speak.rand() * 31)
    if a == b:
        b += 1 + int(speak.rand() * 9)
    greater = speak.chance(0.6)
    prompt = speak.ask(ASK_GREATER if greater else ASK_SMALLER, {'a': a, 'b': b})
    one, other = (max(a, b), min(a, b)) if greater else (min(a, b), max(a, b))
    word = 'greater' if greater else 'less'
    return Exchange('compare', prompt, f'{one} is {word} than {other}.',
    {'rule': 'first_number', 'want': one, 'given': [a, b]})


ASK_NEXT = Grammar(
    "3: [what|which number|what number] comes [after|right after|next after|directly after] {n}?",
    "what is the [next number|number] after {n}?",
    "[what|which number] follows {n}?",
    "what is one more than {n}?",
    f"{TELL_ME} the number [after|that comes after|that follows] {{n}}.",
    "{p}, {n}, [what comes next|what is next|what's next|and then|...]?",
)
ASK_BEFORE = Grammar(
    "3: [what|which number|what number] comes [before|right before|directly before|just before] {n}?",
    "what is the number before {n}?",
    "what is one less than {n}?",
    f"{TELL_ME} the number [before|that comes before] {{n}}.",
)
ASK_DOUBLE = Grammar(
    "3: [what is|what's|how much is] [double|twice|two times] {n}?",
    "what is the double of {n}?",
    "[double|twice] {n}[| is| is what]?",
    "double {n}.",
    "[double|please double|can you double] the number {n}.",
    f"{TELL_ME} [double|twice|the double of] {{n}}.",
)
ASK_HALF = Grammar(
    "3: [what is|what's|how much is] [half of|half|one half of|a half of] {n}?",
    "what is the half of {n}?",
    "[half of|half] {n}[| is| is what]?",
    "halve {n}.",
    f"{TELL_ME} [half of|the half of] {{n}}.",
)


def neighbour(speak):
    n = 1 + int(speak.rand() ** 1.2 * 60)
    shown = in_words(n) if speak.chance(0.3) else str(n)
    if speak.chance(0.6):
        prompt = speak.ask(ASK_NEXT, {'n': shown, 'p': in_words(n - 1) if shown[0].isalpha() else n - 1})
        return Exchange('next', prompt, f'The number after {n} is {n + 1}.',
        {'rule': 'number', 'want': n + 1, 'given': [n]})
    prompt = speak.ask(ASK_BEFORE, {'n': shown})
    return Exchange('next', prompt, f'The number before {n} is {n - 1}.',
    {'rule': 'number', 'want': n - 1, 'given': [n]})


def double_half(speak):
    n = int(speak.rand() * 21)
    if speak.chance(0.5):
        shown = in_words(n) if speak.chance(0.3) else str(n)
        return Exchange('double', speak.ask(ASK_DOUBLE, {'n': shown}), f'Double {n} is {2 * n}.',
                        {'rule': 'number', 'want': 2 * n, 'given': [n]})
    shown = in_words(2 * n) if speak.chance(0.3) else str(2 * n)
    return Exchange('half', speak.ask(ASK_HALF, {'n': shown}), f'Half of {2 * n} is {n}.',
                    {'rule': 'number', 'want': n, 'given': [2 * n]})


ASK_TOO_HARD = Grammar(*['3: [what is|what\'s|whats] {sum}?', "{sum}?", "{sum} =", "how much is {sum}?",
                         "[calculate|compute|work out|solve|do|tell me] {sum}.", "{sum} [is|equals] what?",
                         "[can you|could you] [work out|calculate|tell me] {sum}?"])
TOO_HARD = 'I am sorry, those numbers are too big for me.'


def too_hard(speak):
    name = speak.pick(list(SIGNS))
    if speak.chance(0.5):
        a, b = (1 + speak.pick((2, 3, 4, 5, 6, 7, 8, 9)) * 10 + int(speak.rand() * 9) for _ in range(2))
    else:
        a = speak.pick((100, 1000, 10000)) + 1 + int(speak.rand() * 899)
        b = int(speak.rand() * speak.pick((90, 900, 9000))) + 21
    if speak.chance(0.3) and name != 'divided by':
        a, b = b, a
    prompt = speak.ask(ASK_TOO_HARD, {'sum': str(a) + speak.pick(SIGNS[name]) + str(b)})
    return Exchange('too_hard', prompt, TOO_HARD, {'rule': 'says', 'want': ['too big']})


ASK_PARITY = Grammar(
    "3: is {n} [even or odd|odd or even]?", "is {n} [even|odd]?", "is {n} an [even|odd] number?",
    "is the number {n} [even or odd|odd or even|even|odd]?", "{n}: [even or odd|odd or even]?",
    f"{TELL_WHAT} if {{n}} is [even|odd|even or odd|odd or even].",
    "what kind of number is {n}, [even or odd|odd or even]?", "would you call {n} [even or odd|odd or even]?",
)


def parity(speak):
    n = int(speak.rand() * 41)
    name, other = ('even', 'odd') if n % 2 == 0 else ('odd', 'even')
    shown = in_words(n) if speak.chance(0.25) else str(n)
    return Exchange('parity', speak.ask(ASK_PARITY, {'n': shown}), f'{n} is {name}.',
                    {'rule': 'says', 'want': [name], 'family': 'parity'})


ASK_IN_WORDS = Grammar(
    "3: write {n} [in words|as a word|as words|in letters].", "how do you write {n} in [words|letters]?",
    "what is {n} in words?", "say {n} in words.", "[spell out|write out] the number {n}.", "{n} in words[|?| is what?]",
    "[turn|change] {n} into words.", "the number {n} in words, please.",
)
ASK_IN_DIGITS = Grammar(
    "3: write {n} [in digits|as a number|in numbers|in figures].",
    "how do you write {n} in [digits|numbers|figures]?", "what is {n} in digits?", "what number is {n}?",
    "[turn|change] {n} into [a number|digits].", "{n} as a number[|?]",
    "which number is {n}?", "the number {n} in digits, please.",
)


def notation(speak):
    n = int(speak.rand() * (101 if speak.chance(0.6) else 21))
    if speak.chance(0.5):
        return Exchange('notation', speak.ask(ASK_IN_WORDS, {'n': n}), f'{n} in words is {in_words(n)}.',
                        {'rule': 'says', 'want': [in_words(n)], 'family': 'number_words'})
    return Exchange('notation', speak.ask(ASK_IN_DIGITS, {'n': in_words(n)}),
    f'{capital_first(in_words(n))} in digits is {n}.',
                    {'rule': 'number', 'want': n, 'given': [n]})


ASK_SORT = Grammar(
    "3: sort these numbers: {text}", "sort: {text}", "put these numbers in order: {text}",
    "[put|bring] in order: {text}", "order these numbers[| from small to big| from smallest to biggest]: {text}",
    "[sort|order] the numbers {text}.",
    "[can you|could you|please] sort {text}?", "write these numbers from smallest to biggest: {text}",
    "arrange these numbers: {text}", "which order is right for {text}?",
)


def sort(speak):
    numbers = set()
    while len(numbers) < 3:
        numbers.add(1 + int(speak.rand() * 20))
    shuffled = sorted(numbers, key=lambda _: speak.rand())
    prompt = speak.ask(ASK_SORT, {'text': speak.pick((', ', ' ', ', ')).join(map(str, shuffled))}, plain=True)
    return Exchange('sort', prompt, ', '.join(map(str, sorted(numbers))) + '.',
    {'rule': 'numbers', 'want': sorted(numbers)})
