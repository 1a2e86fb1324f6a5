"""What happens in the stories. A plot is a row of beats; of each beat one line is drawn and its brackets expanded.

Slots: {N} the hero (a name, or "the fox"), {hero} "the fox", {he} {him} {his} and {He} {His} the hero's pronouns; {F} the
helper's name and {friend} "a(n) old owl", {Friend} "the owl"; {Day} "One day"; {thing}, {food} and {fruit} (which grows), {spot} where a thing can
hide; and the slots that a plot draws for itself. A line may end in the middle of no sentence; sentences begin small or
large, stories.py sets the capitals.
"""

from .wording import Grammar


class Plot:
    """A plot: what one may ask for to get it ("{a_hero} who ..."), and its beats."""

    def __init__(self, name, about, *beats):
        self.name = name
        self.about = Grammar(*about)
        self.beats = [Grammar(*beat) for beat in beats]


MEET = [
    'then {F} came by, {friend}.', 'on the way {he} met {friend} named {F}.', 'just then {friend} came along. It was {F}, who lived nearby.',
    'soon {F}, {friend}, heard about it.', 'there {he} met {friend}. "My name is {F}," said {Friend}.', 'at that moment {friend} named {F} looked [up|out of the bushes|around the corner].',
]

PLOTS = [
    Plot('lost_thing', ['{a_hero} who [lost|loses|has lost|looks for] a(n) {thing}', '{a_hero} who [lost|loses|has lost|looks for] {his} {thing}', 'a lost {thing}', 'a(n) {thing} that was lost', 'losing a(n) {thing}'],
         ['{N} had a(n) {colour} {thing} and took it everywhere.', 'what {he} loved most was a(n) {colour} {thing}.', 'in {his} room there was a(n) {colour} {thing}, a gift from {his} grandmother.', '{his} best treasure was a(n) {colour} {thing}.'],
         ['{Day} the {thing} was gone. {N} looked [everywhere|under the bed and behind the door|in every corner], but {he} could not find it.', '{Day} {N} reached for the {thing}, and it was not there. {He} [searched the whole house|searched until noon|turned over every stone], but it was gone.',
          '{Day} {he} came home and saw that the {thing} was missing. "Oh no," said {N}. "Where can it be?"'],
         ['{N} sat down and [cried|sighed|did not know what to do].', '{He} felt very sad.', '{He} asked everyone, but nobody had seen it.'],
         MEET,
         ['"Why are you so sad?" asked {F}. "I have lost my {thing}," said {N}.', '"What are you looking for?" asked {F}. "My {thing}," said {N}. "I cannot find it."', '"I will help you," said {F}. "Where did you see it last?"'],
         ['they looked for it together, [step by step|hour after hour|until the sun was low]. At last they found the {thing} {spot}.', '{F} had [good eyes|a clever idea|sharp ears], and soon they saw something {spot}. It was the {thing}!', 'together they went back along the path, and there was the {thing}, {spot}.'],
         ['"Thank you, {F}!" cried {N}. "Without you I would never have found it."', '{N} was so happy that {he} [danced|laughed out loud|jumped for joy].', '{N} hugged {F} and [shared a cake|shared some {food}] to say thank you.']),

    Plot('lost_way', ['{a_hero} who [got lost|gets lost|lost the way|cannot find the way home]', 'getting lost', 'finding the way home'],
         ['{Day} {N} went [out to pick {fruit}|for a long walk|out to follow a butterfly|to see what was behind the hills].', '{Day} {he} walked [farther than ever before|far from home|along a path that {he} did not know].'],
         ['{He} did not look at the path, and soon everything looked strange.', 'when {he} turned around, the path was gone.', 'a thick fog came up, and {he} could not see the way.', 'the sun went down, and all the trees looked the same.'],
         ['"I am lost," {he} whispered. "How will I get home?"', '{N} called, but only the wind answered.', '{He} was afraid, but {he} did not cry.'],
         MEET,
         ['"I know these paths," said {F}. "Follow me."', '"Do not worry," said {F}. "Look at the [evening star|smoke behind the trees|moss on the stones]. It shows you the way."', '"When I am lost, I follow the river," said {F}. "It always leads home."'],
         ['they walked [side by side|for an hour|slowly through the dark], and {F} told funny stories all the way.', 'step by step they went, and the way did not seem long.', '{N} held on to {F}, and they went on together.'],
         ['at last {N} saw [a light|{his} own door|the roof of {his} home]. "Home!" {he} cried.', 'then {he} saw the place that {he} knew so well. {He} was home.', 'when the moon rose, {N} was home again.'],
         ['from then on, {N} always [looked back to remember the path|left little stones to mark the way].', '{N} gave {F} a bowl of {food}, and they talked by the fire.', '{F} stayed for the night and slept in the warmest corner.']),

    Plot('fear', ['{a_hero} who [is|was] afraid of {fear}', 'being afraid of {fear}', 'being brave', 'courage'],
         ['but {N} had a secret: {he} was afraid of {fear}.', 'only one thing made {him} unhappy. {He} was afraid of {fear}.', '{N} was not afraid of much, but {he} was very afraid of {fear}.'],
         ['{fear_when}, {he} [ran home and hid|hid under a blanket|closed {his} eyes tight].', '{fear_when}, {his} heart began to beat fast.'],
         ['{Day} {he} heard a small voice call for help. It was {F}, {friend}.', '{Day} {friend} named {F} needed help, and there was nobody else.', '{Day} {F}, {friend}, did not come home, and everyone was worried.'],
         ['{N} wanted to run away. But {he} thought, "{F} needs me."', '"I am afraid," thought {N}, "but I must help."', '{His} legs shook. Still {he} took one step, and then another.'],
         ['{He} went on until {he} found {F}. "You came!" said {F}.', 'at last {he} reached {F} and brought {Friend} safely home.', '{He} took {F} by the hand, and together they went home.'],
         ['"Were you not afraid?" asked {F}. "Yes," said {N}, "but I came all the same."', 'and on the way {he} saw that {fear_truth}.', 'then {N} looked around and laughed, for {fear_truth}.'],
         ['since that day {N} has not been afraid of {fear}.', '"Being brave means going on when you are afraid," said {F}.', 'after that, {N} was a little braver every day.']),

    Plot('rescue', ['{a_hero} who [helps|helped|saves|saved] {friend}', '{a_hero} and {friend}', 'helping others', 'helping a friend'],
         ['{Day} {N} heard a cry for help [from the river|behind the trees|from a deep hole|near the old well].', '{Day} {he} was [walking along the river|looking for {fruit}|on the way home], when {he} heard a cry.'],
         ['it was {F}, {friend}, who [had fallen into a hole|was caught in a net|was stuck between two stones|could not get out of the mud].', '{friend} named {F} [was stuck in the mud|had fallen into a hole|was caught in the thorns] and could not get out.'],
         ['"Please help me," said {F}. "I have been here all night."', '"I cannot get out alone," said {F}.', '"Nobody hears me," said {F} in a weak voice.'],
         ['{N} pulled [with all {his} strength|as hard as {he} could], but it was not enough.', '{N} was too weak to do it alone.', 'first {N} tried to pull, but nothing moved.'],
         ['then {he} had an idea. {He} found a long [branch|rope|vine] and [held it out|let it down]. "Hold on tight!" {he} said.', '{He} thought for a while. Then {he} [brought a strong branch|called all the neighbours|made a rope of grass], and they pulled together.'],
         ['slowly, slowly, {F} came out. {F} was free!', 'one, two, three, and {F} was free.', 'it took a long time, but in the end {F} was free.'],
         ['"You saved me," said {F}. "I will never forget it."', '{F} thanked {N} with [a basket of {food}|a song|a big hug].', '"Now we are friends," said {F}, and so it was.']),

    Plot('storm', ['a [storm|big storm|storm at night|rainy night]', '{a_hero} in a storm', '{a_hero} and a storm', 'the rain'],
         ['{Day} dark clouds came over the hills. The wind began to blow.', '{Day} the sky turned black, and the first drops fell.', '{Day} a great storm came. The trees bent, and the rain fell hard.'],
         ['{N} ran home, closed the door and [made a fire|lit a lamp|made some soup].', '{N} was glad to have a dry place and [a warm fire|some hot soup].'],
         ['then somebody knocked. It was {F}, {friend}, wet from head to foot.', 'in the middle of the night there was a knock. {friend} named {F} stood in the rain.', 'through the noise {he} heard a voice. It was {F}, {friend}, alone in the rain.'],
         ['"May I come in?" asked {F}. "My home is [under water|full of rain|gone with the wind]."', '"I am so cold," said {F}. "Nobody else would open the door."'],
         ['there was little room, but {N} said, "Come in. We will find a place for you."', '"Of course," said {N}. "Sit by the fire and get warm."', '{N} did not think twice. "Come in quickly," {he} said.'],
         ['they shared the {food} and told stories until the storm was over.', 'all night long the storm roared, but inside it was warm, and they were not afraid.', '{F} sang an old song, and soon they forgot the storm.'],
         ['in the morning the sun came out. {N} helped {F} to build a new home.', 'the next day the sky was blue, and a rainbow stood over the hills.', 'when the sun came back, everything was clean and bright.'],
         ['"A small house is big enough for friends," said {N}.', '"You opened your door," said {F}. "I will never forget that."']),

    Plot('sharing', ['sharing', '{a_hero} who [shares|shared|learns to share] {fruit}', '{a_hero} in winter', 'a long winter', 'kindness'],
         ['all summer {N} had gathered {fruit}, and the store was full.', 'before the winter {N} filled the house with {fruit}.', 'in autumn {N} carried home a big basket of {fruit}.'],
         ['then the snow came. It was the longest winter that anyone could remember.', 'the winter was hard, and the snow lay high.', 'soon everything was white, and nothing grew any more.'],
         ['one evening {F}, {friend}, stood at the door. "I have nothing left to eat," said {F}.', 'one cold day {friend} named {F} knocked at the door, thin and hungry.'],
         ['{N} looked at the {fruit}. Was there enough for two?', 'at first {N} thought, "This is all mine." But then {he} saw how {F} was shaking.', '{N} did not know what to say. There was not much left.'],
         ['"Come in," {he} said. "Half of it is yours."', 'then {he} smiled and put two bowls on the table.', '"Eat with me," said {N}. "It tastes better with a friend."'],
         ['every day they ate a little, and every day there was enough.', 'they ate together all winter, and the long nights went by with stories and songs.'],
         ['when spring came, {F} [planted a whole garden for {N}|brought a basket full of fresh {fruit}|showed {N} a field full of {fruit}].', 'in spring the snow melted, and they went out together to look for new {fruit}.'],
         ['"Half was more than enough," said {N}.', '{N} had less {fruit} than before, but {he} had a friend.']),

    Plot('race', ['a race', '{a_hero} who [wants to win|wanted to win] a race', '{a_hero} and {friend} in a race', 'winning and losing'],
         ['{Day} there was a race [around the lake|to the old oak|over the hill|through the village]. Everyone came to see it.', 'every year there was a great race [around the lake|to the old oak|over the hill], and {N} wanted to win.'],
         ['{F}, {friend}, wanted to run, too. "I am the fastest of all," said {F}.', '"Nobody can beat me," said {F}, {friend}, and laughed.'],
         ['one, two, three, and they were off! {F} was far ahead.', 'the race began. {N} ran as fast as {he} could, but {F} was faster.', '{F} ran like the wind, and {N} was soon the last of all.'],
         ['but in the middle of the way {F} [fell over a stone|stepped on a thorn|slipped in the mud] and could not get up.', 'then {N} saw {F} sitting by the path. "My foot hurts," said {F}.'],
         ['{N} could have won now. But {he} stopped. "Lean on me," {he} said.', '{N} looked at the finish, and then at {F}. "I will not leave you here," {he} said.'],
         ['together they [walked|went slowly] to the finish. They came last of all.', 'side by side they crossed the line, long after the others.'],
         ['but everyone clapped, and {N} got a prize for the kindest heart.', 'yet the people cheered louder for them than for the winner.'],
         ['"You did not win the race," said {F}, "but you won a friend."', '"Next year we will run together," said {F}.']),

    Plot('learn', ['{a_hero} who [wants to|wanted to|learns to|could not] {skill}', '{a_hero} who wants to learn to {skill}', 'learning to {skill}', 'never giving up', 'learning something new'],
         ['{N} had one big wish: {he} wanted to {skill}.', 'more than anything else, {N} wanted to {skill}.', 'every night {N} dreamed that {he} could {skill}.'],
         ['{Day} {he} tried {skill_where}, but it went all wrong.', '{Day} {he} tried it for the first time. Everyone laughed.', 'but {he} did not know how, and the first try was a mess.'],
         ['"I will never learn it," {he} said and sat down.', '{N} was so sad that {he} wanted to give up.', '"It is too hard for me," said {N}.'],
         MEET,
         ['"Nobody can do it on the first day," said {F}. "Try a little every day."', '"I fell down a hundred times before I learned it," said {F}. "Come, I will show you."', '"Start slowly," said {F}. "Small steps are steps, too."'],
         ['so {N} practised every morning {skill_where}. Some days were good, and some were not.', 'day after day {N} practised, and {F} was always there to help.', 'they practised in the sun and in the rain, and it became a little easier each time.'],
         ['and one day it worked! {N} {skill_done}.', 'at the summer feast everyone came to watch. {N} {skill_done}.', 'then, all at once, {he} could do it. {N} {skill_done}.'],
         ['"I knew that you could do it," said {F}.', 'nobody laughed any more. They all cheered.', '"I only had to go on trying," said {N}.']),

    Plot('new_friend', ['{a_hero} who [has|had] no friends', '{a_hero} who finds a friend', '{a_hero} and {friend}', '{a_hero} and {a_hero2}', 'friendship', 'a new friend', 'being lonely'],
         ['but {N} was alone. There was nobody to play with.', '{N} had everything but a friend.', 'every day {he} played alone, and every evening {he} ate alone.'],
         ['{Day} someone new came to live nearby. It was {F}, {friend}.', '{Day} {he} saw {friend} sitting alone [under a tree|by the water|on a stone]. It was {F}, who was new here.', '{Day} {friend} named {F} moved in next door.'],
         ['{N} wanted to say hello, but {he} was too shy.', '{N} watched {F} from behind a tree and did not dare to speak.', '"What if {F} does not like me?" thought {N}.'],
         ['then {he} had an idea. {He} put some {food} in front of the door of {F} and ran away.', 'at last {he} took a deep breath. "Hello," {he} said. "Would you like some {food}?"', 'then a ball rolled to {his} feet. "Would you throw it back?" called {F}.'],
         ['"I was hoping that someone would come," said {F}. "I know nobody here."', '{F} smiled. "I have been alone for so long," said {F}. "Shall we play?"'],
         ['they [built a little house of branches|played hide and seek|told each other stories] until it was dark.', 'all afternoon they [played by the water|ran over the fields|laughed and talked].'],
         ['the next day {F} came back, and the day after that, too.', 'from that day on, they met every morning.'],
         ['"It only takes one hello," said {N}.', 'and {N} was never lonely again.']),

    Plot('repair', ['a broken {thing}', '{a_hero} who [breaks|broke] a(n) {thing}', 'telling the truth', 'honesty', '{a_hero} and a broken {thing}'],
         ['{F}, {friend}, had a beautiful {colour} {thing}.', 'next door lived {F}, {friend}, who had a(n) {colour} {thing}.'],
         ['{Day} {N} wanted to look at the {thing}. It slipped and broke in two.', '{Day} {N} was playing and did not look. Crack! The {thing} was broken.', '{Day} {he} borrowed the {thing} without asking, and it broke.'],
         ['"Nobody has seen it," {he} thought. {He} hid the pieces and went home.', '{N} was afraid. "If I say nothing, nobody will know," {he} thought.'],
         ['but that night {he} could not sleep. {He} thought of {F} all the time.', 'but the {food} did not taste good that evening, and {his} heart was heavy.'],
         ['in the morning {he} went to {F}. "I broke your {thing}," {he} said. "I am sorry."', 'at last {he} stood before {F} and told the whole truth.'],
         ['{F} was quiet for a moment. "Thank you for telling me," said {F}. "That was brave."', '{F} looked sad, but then smiled. "A thing can be mended," said {F}.'],
         ['together they mended the {thing} with [glue|string|wood and nails], and it was almost as good as new.', 'they worked all afternoon, and in the end the {thing} was whole again.'],
         ['that night {N} slept very well.', '"The truth is hard for a minute," said {F}, "but a lie is hard for a long time."']),

    Plot('noise', ['a [strange|mysterious] noise', '{a_hero} who hears a noise', 'a noise in the night', 'a ghost that was no ghost'],
         ['{Day} after dark {N} heard a strange noise. [Tap, tap, tap.|Scratch, scratch.|Whoo, whoo.|Bump, bump, bump.]', 'one night {he} was awake in bed when {he} heard a noise. [Tap, tap, tap.|Creak, creak.|Bump, bump, bump.]'],
         ['"Who is there?" {he} called. Nobody answered.', '"Is it a monster?" thought {N} and pulled up the blanket.', 'it came again, and this time it was louder.'],
         ['{He} lit a candle and went [down the stairs|to the door|outside], step by step.', '{N} took a deep breath and opened the door a little.'],
         ['something moved [in the shadow|behind the chair|in the moonlight]. {N} almost dropped the light.', 'there was a small shape in the dark. It had two shining eyes.'],
         ['then {he} saw it. It was only {F}, {friend}!', '"Please do not be afraid," said a voice. It was {F}, {friend}.'],
         ['"I am sorry," said {F}. "I [lost my key|was looking for {food}|am cold and wanted to come in]."', '"I did not want to wake you," said {F}. "I was only hungry."'],
         ['{N} laughed until {his} belly hurt. "And I thought that you were a monster!"', '"Come in," said {N}. "We were both afraid."'],
         ['they drank warm milk together and were not afraid any more.', 'after that, {N} was never again afraid of noises in the night.']),

    Plot('treasure', ['{a_hero} who finds a [key|map|box|treasure|treasure map|magic stone]', 'a treasure', 'a hidden treasure', 'an old map', '{a_hero} and a treasure'],
         ['{Day} {N} found an old [map|letter|key] [in a bottle|under a stone|in a hollow tree|in the attic].', '{Day} {he} was digging in the garden and found a rusty key.'],
         ['"It must lead to a treasure!" {he} cried.', '"Gold," thought {N}, "a big box full of gold!"'],
         ['{He} asked {F}, {friend}, to come along, for the way was long.', '{F}, {friend}, had heard of it. "I will come with you," said {F}.'],
         ['they went over [three hills|a shaky bridge|the river], through [a dark wood|tall grass|a deep valley], and up to a cave.', 'all day they walked. They crossed a river and climbed a hill, and helped each other up.'],
         ['there stood a big old box. {N} opened it, and {his} heart beat fast.', 'behind a stone they found a chest. Slowly they opened it.'],
         ['there was no gold in it. There was only a note: "The best treasure is the one who came with you."', 'inside there was no gold, but [a book full of stories|seeds of a hundred flowers|a hundred old letters].'],
         ['{N} looked at {F}, and then they both laughed.', 'at first {N} was sad, but then {he} thought of the fine day that they had had.'],
         ['"We came for gold," said {F}, "and we found something better."', 'they told the story of that day for many years.']),

    Plot('greed', ['{a_hero} who [wants|wanted] too much', 'a greedy {hero_word}', 'being greedy', '{a_hero} who [ate|eats] too much'],
         ['{Day} {N} found [a tree|a bush|a place] full of {fruit}. "All mine!" {he} said.', '{Day} {N} found more {fruit} than {he} had ever seen.'],
         ['{F}, {friend}, asked, "May I have a little?" But {N} said no.', 'when {F}, {friend}, came by, {N} hid everything.'],
         ['{N} ate and ate until nothing was left.', '{He} ate until {he} could not move any more.'],
         ['then {his} belly began to hurt. {N} lay on the ground and groaned.', 'that night {he} felt very ill. Nobody was there to help.'],
         ['who came to help? It was {F}, with a cup of warm tea.', 'in the morning {F} heard the groans and came in. "Drink this tea," said {F}. "It will help."'],
         ['"Why are you so kind?" asked {N}. "I gave you nothing." "You needed help," said {F}.', '{N} felt ashamed. "I am sorry," {he} said. "I should have shared."'],
         ['the next time {N} found {fruit}, {he} called {F} at once.', 'soon {N} was well again, and {he} filled a big basket for {F}.'],
         ['and it tasted twice as good.', '"There is enough for both of us," said {N}, and they laughed.']),

    Plot('birthday', ['a birthday', '{a_hero} and a birthday', 'a surprise', 'a party', '{a_hero} who thinks that everyone forgot the birthday'],
         ['it was {his} birthday. {N} got up early and waited.', '{Day} {N} woke up very happy. It was {his} birthday!'],
         ['but nobody came. Nobody said a word about it.', '{He} met {F}, {friend}. "I have no time today," said {F} and ran away.'],
         ['"They all forgot it," thought {N}, and {his} eyes were wet.', '{N} walked alone through the fields and felt sad.'],
         ['in the evening {he} went home. The house was dark.', 'when the sun was low, {he} went slowly home.'],
         ['{He} opened the door, and suddenly [there were lights everywhere|a hundred candles shone]. "Surprise!" they all called.', '"Surprise!" shouted {F} and all the neighbours, and the lamps were lit.'],
         ['there was a big cake with {food}, and {F} had made a(n) {colour} {thing} for {him}.', '{F} had worked all day to bake a cake.'],
         ['"Did you think that we forgot you?" asked {F}. "Never!"', 'they danced and sang until the moon was high.'],
         ['it was the best birthday of all.', '{N} went to bed with a smile.']),

    Plot('seed', ['{a_hero} who [plants|planted] a seed', 'a seed', 'a garden', 'patience', '{a_hero} with a garden', 'a little seed'],
         ['{Day} {N} found a tiny seed [on the path|in an old pocket|under a leaf].', '{Day} {F}, {friend}, gave {him} a tiny seed. "Put it into the ground," said {F}.'],
         ['{He} planted it in the garden and gave it water.', '{He} made a small hole in the soil, put in the seed and covered it.'],
         ['the next day {he} ran out to look. There was nothing.', '{N} waited one day, two days, three days. Nothing grew.'],
         ['"It is a bad seed," said {N}. "I will throw it away."', '"Why does it take so long?" asked {N} and stamped {his} foot.'],
         ['"Wait," said {F}. "Good things need time."', '"A seed is like a friend," said {F}. "You must not hurry it."'],
         ['so {N} gave it water every morning and pulled out the weeds.', 'so {he} waited, in the rain and in the sun, and took good care of it.'],
         ['one morning there was a small green leaf. Then there were two, and then [a whole flower|a little tree|a tall sunflower].', 'at last something green came out of the soil. It grew and grew, until it was taller than {N}.'],
         ['when it was covered with [white flowers|red flowers|{fruit}], {N} called everyone to see it.', '"It was worth the wait," said {N}.']),

    Plot('too_small', ['{a_hero} who [is|was] too small', 'being small', 'a tiny {hero_word}', '{a_hero} who wants to be big'],
         ['{N} was the smallest of all, and the others laughed. "You are too small to help," they said.', 'everyone else was bigger than {N}. "I wish that I were big," {he} often said.'],
         ['{Day} {F}, {friend}, lost a(n) {colour} {thing}. It fell [into a deep crack|down a narrow hole|between two rocks].', '{Day} the {thing} of {F}, {friend}, fell [into a deep crack|down a narrow hole|between two rocks].'],
         ['the strong ones tried, but their hands were too big.', 'all the big ones pushed and pulled, but nobody could reach it.'],
         ['then {N} stepped forward. "Let me try," {he} said.', '"I am small enough," said {N}.'],
         ['some of them laughed. But {N} slipped into the dark hole, and all was quiet.', '{N} took a deep breath and went down into the dark, deeper and deeper.'],
         ['then a small voice called, "I have it!" And {N} came out with the {thing}.', 'after a while {he} came back, dusty and proud, with the {thing}.'],
         ['"Thank you, {N}," said {F}. "Only you could do that."', 'the others cheered and carried {N} home.'],
         ['nobody ever said again that {N} was too small.', 'now {N} knew that small can be just right.']),

    Plot('wing', ['a bird with a broken wing', '{a_hero} who finds a bird', '{a_hero} and a little bird', 'a little bird', 'taking care of a friend'],
         ['{Day} {N} found a little bird {spot}. It had a broken wing.', '{Day} after a storm a little bird lay {spot}. It could not fly.'],
         ['{N} picked it up with great care and carried it home.', '"Do not be afraid," said {N}. "I will take care of you."'],
         ['{He} made a bed of soft leaves and gave it seeds and water.', '{F}, {friend}, showed {him} how to bind the wing.'],
         ['every day the bird was a little stronger, and every day it sang a little more.', 'the bird slept, and ate, and slowly the wing grew strong.'],
         ['in spring the bird looked out at the sky. {N} knew what that meant.', 'one day the bird sat at the window and looked at the clouds.'],
         ['"You must go now," said {N}, and {he} opened the window. {He} was sad and happy at once.', 'with a heavy heart {N} opened the window, and the bird flew away.'],
         ['for a long time {he} heard nothing. But the next spring there was a song at the window.', 'all summer {N} looked at the sky. Then, one morning, {he} heard a song that {he} knew.'],
         ['the bird had come back, and it had brought a whole family.', 'it was the little bird. It came back every year.']),

    Plot('journey', ['{a_hero} who [wants|wanted] to see the [sea|world|mountains|city]', 'a long journey', 'an adventure', 'a journey', '{a_hero} on a journey', '{a_hero} who leaves home'],
         ['{N} had never been far from home. "I want to see the [world|sea|mountains]," {he} said.', 'every night {N} dreamed of far places.'],
         ['{Day} {he} packed a little bag with {food} and went off.', '{Day} {he} said goodbye and followed the road.'],
         ['{He} crossed [a wide river|three hills|a dark wood] and slept under the stars.', 'the road was long, and {his} feet were tired, but {he} went on.'],
         MEET,
         ['"Where are you going?" asked {F}. "To the end of the road," said {N}. "Then I will come along," said {F}.', '"May I come with you?" asked {F}. "Two are better than one," said {N}.'],
         ['together they saw [tall ships and white beaches|snow on high mountains|a city with a thousand lights].', 'they saw many wonderful things and sang many songs.'],
         ['but one evening {N} grew quiet. "What is it?" asked {F}. "I miss my home," said {N}.', 'yet every night {N} thought of {his} own warm bed.'],
         ['so they went back, and the little house had never looked so fine.', 'when they came home, {N} put on the kettle. "The world is beautiful," {he} said, "and so is home."']),

    Plot('quarrel', ['a quarrel', '{a_hero} and {friend} who [quarrel|fight]', 'saying sorry', 'making up', 'two friends who [quarrel|fight]'],
         ['{his} best friend was {F}, {friend}. They did everything together.', 'every day {he} played with {F}, {friend}.'],
         ['{Day} they both wanted the same {thing}. "It is mine!" cried {N}. "No, mine!" cried {F}.', '{Day} they were building a tower, and it fell. "It is your fault!" said {N}. "No, yours!" said {F}.'],
         ['they both went home and closed the door.', '{N} turned around and walked away without a word.'],
         ['{N} played alone, but it was no fun.', 'the next day was long and quiet. {N} had nobody to talk to.'],
         ['"Why did I say that?" thought {N}. "I miss {F}."', '{He} looked out of the window again and again.'],
         ['at last {he} took some {food} and went out. Halfway there, {he} met {F}, who carried some {food}, too.', 'in the evening {he} went to {F} and said, "I am sorry."'],
         ['"I am sorry, too," said {F}. They looked at each other and began to laugh.', '"It was a silly quarrel," said {F}. "Let us forget it."'],
         ['then they played together until it was dark.', 'and they ate together, and it tasted wonderful.']),

    Plot('neighbour', ['a kind neighbour', '{a_hero} who helps an old neighbour', 'a good deed', 'an old neighbour'],
         ['next door lived {F}, {friend}, who was very old and could not [carry wood|walk far|see well] any more.', 'not far away lived {F}, {friend}, old and alone.'],
         ['{Day} {N} saw that there was no smoke over the house of {F}.', '{Day} {N} saw {F} standing in the cold with an empty basket.'],
         ['"I have no wood for the fire," said {F}, "and the forest is far."', '"My legs are tired," said {F}. "I cannot go to the market."'],
         ['"I will go for you," said {N}, and off {he} went.', '{N} did not say much. {He} took the basket and ran.'],
         ['all day {he} carried [wood|water|{food}], until {his} arms were tired.', '{He} brought wood, water and a bag of {food}.'],
         ['"How can I thank you?" asked {F}. "You do not have to," said {N}.', '{F} had no money. "But I have stories," said {F}.'],
         ['so {F} told a story, and it was the best that {N} had ever heard.', 'that evening they sat by the fire, and {F} told of old times and far lands.'],
         ['after that, {N} came every evening to hear another one.', '"I gave a little wood," said {N}, "and I got a whole world."']),

    Plot('flood', ['{a_hero} who [saves|saved] the village', 'a flood', 'a hero', 'a brave {hero_word}', '{a_hero} who [saves|saved] everyone'],
         ['{Day} it rained and rained, and the river rose.', 'one night {N} was the only one awake. {He} heard the water roar.'],
         ['then {he} saw it: the water was coming, and everyone was asleep!', '"The river is coming over the wall!" cried {N}. But nobody heard.'],
         ['{N} ran as fast as {he} could to the old bell.', '{He} ran from door to door and knocked. "Wake up! Wake up!"'],
         ['the rope was wet and heavy, but {he} pulled and pulled. Ding, dong!', '{F}, {friend}, was the first to wake. "What is it?" asked {F}. "The water!" cried {N}.'],
         ['everyone woke up and ran up the hill, the old ones and the young ones.', 'all of them took what they could carry and climbed up the hill.'],
         ['the water came into the houses, but nobody was hurt.', 'they sat together on the hill and saw the water go by.'],
         ['in the morning the water was gone. "You saved us all," said the others.', 'when the sun rose, everyone said, "Without {N} we would not be here."'],
         ['they cleaned the houses together, and {N} got a shiny medal.', 'from that day on, {N} was the one who watched over the bell.']),

    Plot('fallen_star', ['a [fallen star|falling star|star that fell from the sky]', '{a_hero} who finds a star', '{a_hero} and a star', 'a shooting star', 'a wish'],
         ['{Day} at night a star fell from the sky. It landed {spot}.', 'one night {N} saw a bright light {spot}. It was a little star.'],
         ['"I fell down," said the star. "I want to go home, but I cannot fly."', 'the star was cold, and its light was weak. "Please help me," it said.'],
         ['{N} carried it home and kept it warm.', '{He} put it into {his} hat and gave it a kiss.'],
         ['{N} wanted to keep the star, for it was so beautiful.', '"You could stay with me," said {N}. But the star looked up and was silent.'],
         ['{F}, {friend}, knew what to do. "Take it to the top of the highest hill," said {F}.', 'so {he} asked {F}, {friend}. "Stars belong in the sky," said {F}.'],
         ['they climbed all night. At the top {N} held the star up high.', 'together they climbed the hill and waited for the wind.'],
         ['"Thank you," whispered the star. It rose and rose, until it was a small light among the others.', 'the star began to shine and flew up into the dark sky.'],
         ['since then one star shines a little brighter above the home of {N}.', 'every night {N} looks up, and the star winks.']),
]

# For heroes that live in the sea.
SEA_PLOTS = [
    Plot('sea_boat', ['{a_hero} who [helps|saves] a sailor', 'the sea', '{a_hero} and a boat', '{a_hero} in the sea'],
         ['{Day} a little boat came. A sailor sat in it and sang.', '{Day} a great storm came over the sea, and the waves were high.'],
         ['suddenly a big wave turned the boat over.', 'then {N} saw a small boat. It was full of water.'],
         ['"Help!" cried {F}, the sailor. "I cannot swim so far."', 'in the water was {F}, a young sailor, holding on to a plank.'],
         ['{N} was afraid of people, but {he} swam closer.', '{N} did not wait. {He} swam as fast as {he} could.'],
         ['"Hold on to me," said {N}, and {he} swam and swam.', '{He} pushed the plank with all {his} strength.'],
         ['at last they saw the beach. {F} was safe.', 'when the moon rose, they reached the shore.'],
         ['"I will never forget you," said {F}.', '{F} came back every year with [a song|a gift|a basket of {food}].'],
         ['and sometimes, at night, you can hear them sing together.', 'they stayed friends, one on the land and one in the sea.']),
    Plot('sea_lost', ['{a_hero} who gets lost in the sea', '{a_hero} who swims too far', 'a lost {hero_word}'],
         ['{Day} {N} swam farther than ever before. {He} wanted to see the end of the sea.', '{Day} a strong current took {N} far away.'],
         ['soon the water was dark and cold, and {he} did not know the way.', 'everything looked strange. There was no light and no sound.'],
         ['"Is anybody there?" called {N}. It was very quiet.', '{N} was afraid and hid behind a rock.'],
         ['then {friend} named {F} swam by.', 'there {he} met {F}, {friend}.'],
         ['"Follow the warm water," said {F}. "It leads to the bay."', '"I know every rock," said {F}. "Come with me."'],
         ['they swam side by side, past [sunken ships|green plants|a thousand little fish].', '{F} told funny stories, and the way was not long.'],
         ['at last {N} saw the light of home.', 'then the water became warm and blue, and {he} was home.'],
         ['"The end of the sea can wait," said {N}.', 'since that day they have been the best of friends.']),
]

# For things that are heroes: {N} is "the kite", {he} is "it".
THING_PLOTS = [
    Plot('needed', ['{a_hero} that nobody [wanted|wants|needed|used]', '{a_hero} that wanted to {use}', 'a forgotten {hero_word}', 'a(n) old {hero_word}'],
         ['once upon a time there was {a_hero}. It {where}, and nobody looked at it.', 'there was once {a_hero} that {where}. Day after day went by, and nobody came.', 'long ago there was {a_hero}. All alone it {where}.'],
         ['"I would so much like to {use}," it thought.', 'it had only one wish: it wanted to {use}.', '"What am I good for?" it sighed. "I want to {use}."'],
         ['the days were long, and the nights were longer.', 'the dust fell, and a spider was its only friend.', 'summer came and went, and winter, too.', 'once it had been new, but that was long ago.'],
         ['{Day} a child named {F} came by and stopped.', '{Day} {F}, a curious child, was looking for something.', '{Day} a child named {F} came running in out of the rain.'],
         ['"Look at this!" said {F}. "What a fine {hero_word}!"', '"I have never seen such a beautiful {hero_word}," said {F}.', '"This is just what I need," said {F}.'],
         ['{F} [was very careful|smiled|did not wait a moment], and then it happened. {done}.', 'soon everything was ready. {done}.', 'and then the great moment came. {done}.'],
         ['"Now I know what I am for," thought {N}.', 'it had never been so happy.', 'all the waiting was forgotten.'],
         ['from that day on, {F} came back again and again.', '{F} never let it be alone again.', 'and everyone who saw it had to smile.']),
    Plot('jealous', ['{a_hero} that wanted to be [different|something else|big]', '{a_hero} that was not happy', '{a_hero}'],
         ['once upon a time there was {a_hero}. It {where}.', 'there was once {a_hero} that {where}.'],
         ['"I am only a(n) {hero_word}," it said. "I wish I were [a mountain|the sun|a golden crown|a great ship]."', 'it was not happy. "Everyone else is finer than I am," it said.'],
         ['the wind heard it and laughed softly. "Wait," said the wind.', 'an old spider heard it. "You do not know yourself," said the spider.'],
         ['{Day} a child named {F} was sad and alone.', '{Day} {F}, a small child, came by with tears in both eyes.'],
         ['then {F} saw {N} and came closer.', '{F} looked up, and there was {N}.'],
         ['"Can you {use}?" asked {F}. And {N} did it as well as it could. {done}.', '{N} did what it could do best. {done}.'],
         ['{F} stopped crying and began to smile. "Thank you," said {F}.', 'the tears dried, and {F} laughed.'],
         ['"I do not want to be anything else," thought {N}.', 'after that, it never again wished to be something else.']),
    Plot('away', ['{a_hero} that [got lost|went away|ran away|was lost]', 'a lost {hero_word}', 'a runaway {hero_word}'],
         ['there was once {a_hero} that belonged to a child named {F}.', 'once upon a time a child named {F} had {a_hero} and loved it very much.'],
         ['{Day} a strong wind came and carried {N} away.', '{Day} {F} left {N} on a bench and forgot it.', '{Day} there was a hole in the bag, and {N} fell out.'],
         ['when {F} saw it, {N} was gone. {F} cried all evening.', '{F} looked everywhere, but {N} was gone.'],
         ['far away {N} lay {spot}. It was cold and dark.', '{N} lay {spot} and waited. Rain fell on it, and leaves covered it.'],
         ['"Will somebody find me?" it thought.', 'a mouse came and sat with it, so that it was not alone.'],
         ['{F} did not give up. Every day {F} went out to look.', 'then {F} made a plan and searched one street after the other.'],
         ['on the third day {F} saw something {spot}. "There you are!" {F} cried.', 'at last {F} bent down, and there it was.'],
         ['{F} cleaned it and took it home, and never forgot it again.', 'that night {N} was back in its place, and all was well.']),
]

# What a story on a plot's theme speaks of: one of these words at least.
THEME_WORDS = {
    'lost_thing': 'lost gone missing find', 'lost_way': 'lost way path paths home', 'fear': 'afraid', 'rescue': 'help cry free thanked', 'storm': 'storm rain drops clouds wind',
    'sharing': 'half enough share eat together', 'race': 'race', 'learn': 'learn try practised', 'new_friend': 'friend alone', 'repair': 'broke broken',
    'noise': 'noise', 'treasure': 'treasure gold', 'greed': 'mine hid more', 'birthday': 'birthday', 'seed': 'seed', 'too_small': 'small',
    'wing': 'bird', 'journey': 'far world road', 'quarrel': 'mine fault sorry', 'neighbour': 'old', 'flood': 'water river', 'fallen_star': 'star',
    'sea_boat': 'boat sailor', 'sea_lost': 'sea', 'needed': 'nobody alone', 'jealous': 'only wish', 'away': 'gone lost',
}

# Without a name: {N} is "the fox".
NAMELESS_OPENINGS = Grammar(
    'once upon a time there was {a_hero} who lived {place}.',
    'once upon a time {a_hero} lived {place}.',
    'once upon a time, {place}, there lived {a_hero}.',
    'there was once {a_hero} who lived {place}.',
    'long ago {a_hero} lived {place}.',
)
OPENINGS = Grammar(
    'once upon a time there was {a_hero} named {N}. {He} lived {place}.',
    'once upon a time, {place}, there lived {a_hero} named {N}.',
    'once upon a time {a_hero} named {N} lived {place}.',
    'once upon a time there lived {a_hero} {place}. [{His} name was {N}.|Everyone called {him} {N}.]',
    'there was once {a_hero} named {N}, who lived {place}.',
    'long ago, {place}, there lived {a_hero}. {His} name was {N}.',
    '{N} was {a_hero} who lived {place}.',
    'a long time ago there was {a_hero} named {N}. {His} home was {place}.',
    'not so long ago, {a_hero} named {N} lived {place}.',
)
HABIT = Grammar('{He} {habit}.', '{N} {habit}.', '{N} {habit} and {habit2}.', 'every day was the same, and {N} {habit}.', '', '{He} {habit}, and everyone liked {him}.')
CLOSING = Grammar('', '', '', 'and they [were|stayed] friends for ever.', 'and so they lived happily.', 'that was a good day.', 'and if you go there, you can still hear them laugh.',
                  'that evening everyone went to bed happy.', '{N} remembered that day for a long time.', 'and all was well.', 'what a day it had been!')
THING_CLOSING = Grammar('', '', 'and all was well.', 'what a day it had been!', 'and so it stayed.', 'that evening the stars shone brighter than ever.')
