"""Questions about quern and its commands. The answers are those of the README and of `quern help`."""

from .wording import TELL_ME, Exchange, Grammar

HOW = "[how do I|how can I|how does one|how to|how would I|what is the command to|what do I type to|which command do I use to|tell me how to|I want to|show me how to|how do you|explain how to|what command is there to|can you tell me how to|how should I]"
Q = "[quern|with quern|in quern|using quern]"

# kind; what must be in the answer; the answer; wordings
ROWS = [
    ('what', 'GGUF', 'Quern is one program that runs language models in GGUF files on your own computer.',
     "4: what is quern?", "2: what's quern?", "what does quern do?", "what is quern [for|good for|about|used for]?", "tell me about quern.", "explain quern[| to me].", "tell me what quern [is|does].", "describe quern.",
     "what kind of [program|tool|software] is quern?", "what can quern do?", "what can I do with quern?", "I want to know what quern is.", "quern?", "do you know [quern|what quern is]?", "can you explain [quern|what quern is]?", "why [would I|should I] use quern?", "is quern a program?", "define quern."),
    ('run', 'quern run', 'Use quern run -m MODEL "your prompt". Without -m it uses the built-in model.',
     f"4: {HOW} run a model with quern[| on my computer]?", f"3: {HOW} run a model?", f"{HOW} [start|use|try|launch|load] a [model|GGUF file|language model|model file][| with quern| in quern]?", "what does quern run do?", "what is quern run[| for]?", "what is the run command[| for| of quern]?", "explain quern run.", f"{HOW} [get an answer|generate text|complete a text|continue a text|ask a question] with quern?",
     "how do I use quern?", "how does quern work?", "how is quern used?", "tell me how to use quern.", f"{HOW} run quern?", "how do I use quern run?", f"{HOW} [ask|prompt] a model?", "which command runs a model?", "what command runs a model?", "tell me about [quern run|the run command]."),
    ('chat', 'quern chat', 'Use quern chat to talk with a model on the terminal. /bye leaves.',
     f"4: {HOW} [chat|talk|speak|have a conversation] with a model[| in quern| with quern]?", f"{HOW} [start|begin|open] a [chat|conversation][| with quern| in quern]?", "what does quern chat do?", "what is quern chat[| for]?", "what is the chat command[| for| of quern]?", "explain quern chat.", "which command is for [chatting|talking|a chat]?", "can I [chat|talk] with quern?", "how do I chat?",
     "does quern have a chat?", "tell me about [quern chat|the chat command].", "how do I use quern chat?", f"{HOW} chat with [you|quern]?"),
    ('leave', '/bye', 'Type /bye or press Ctrl-D to leave the chat.',
     f"{HOW} [leave|quit|exit|end|stop|close] the chat?", f"{HOW} [leave|quit|exit|end|close] quern chat?", "how do I get out of the chat?", "what does /bye do?", "what is /bye?", "which key leaves the chat?", "how do I stop chatting?", f"{HOW} [quit|exit|leave] quern?"),
    ('stop_answer', 'Ctrl-C', 'Press Ctrl-C to stop the answer. The chat goes on.',
     f"{HOW} [stop|interrupt|cancel|break off] [an answer|the answer|a long answer|the model]?", "what does Ctrl-C do[| in the chat]?", "which key stops the answer?", "what happens when I press Ctrl-C?", "the answer is too long, how do I stop it?", "how do I make the model stop?"),
    ('chat_commands', '/help', 'In the chat you can type /help, /clear, /regen, /undo, /save, /load, /set, /system, /read, /stats and /bye.',
     "what commands are there in the chat?", "which commands [does the chat have|can I use in the chat|does quern chat know]?", "list the [chat commands|commands of the chat|slash commands].", "what are the [chat commands|slash commands]?", "what can I type in the chat?", "tell me the chat commands.", "what does /help do?"),
    ('clear', '/clear', 'Type /clear in the chat to forget the conversation and begin again.',
     "what does /clear do?", f"{HOW} [clear|forget|reset|delete] the [conversation|chat|history]?", f"{HOW} [start over|begin again] in the chat?", "what is /clear[| for]?"),
    ('regen', '/regen', 'Type /regen in the chat to get another answer to your last message.',
     "what does /regen do?", f"{HOW} get [another|a new|a different] answer[| in the chat]?", f"{HOW} regenerate [the|an] answer?", "what is /regen[| for]?", f"{HOW} try the answer again?"),
    ('undo', '/undo', 'Type /undo in the chat to take back your last message and its answer.',
     "what does /undo do?", f"{HOW} undo [my|the] last message?", f"{HOW} take back [a|my last] message?", "what is /undo[| for]?"),
    ('save', '/save', 'Type /save in the chat to keep the conversation, and /load to bring it back.',
     "what [does|do] [/save|/load] do?", f"{HOW} [save|keep|store] [a|the] [chat|conversation]?", f"{HOW} load a [saved |][chat|conversation]?", "what [is|are] [/save|/load][| for]?", "can I save the chat?"),
    ('system', '/system', 'Type /system and a text in the chat to set the system message.',
     "what does /system do?", f"{HOW} set [a|the] system [message|prompt]?", f"{HOW} change the system [message|prompt]?", "what is /system[| for]?", "what is a system message?"),
    ('batch', 'quern batch', 'Use quern batch to answer a file of many prompts, a prompt a line.',
     f"4: {HOW} [run|process|answer|handle] [many|a file of|lots of|a list of|several|multiple] prompts[| with quern| at once]?", "what does quern batch do?", "what is quern batch[| for]?", "what is the batch command[| for| of quern]?", "explain quern batch.", "can quern [run|answer] many prompts?", "which command is for many prompts?",
     f"{HOW} use batch?", "tell me about [quern batch|the batch command].", f"{HOW} do a batch[| with quern]?", "can I give quern a file of prompts?"),
    ('bench', 'quern bench', 'Use quern bench to measure how many tokens a second a model makes.',
     f"4: {HOW} [measure|test|benchmark|find] [the|its] speed[| of a model| of quern]?", f"{HOW} benchmark[| a model| quern| my computer]?", "what does quern bench do?", "what is quern bench[| for]?", "what is the bench command[| for| of quern]?", "explain quern bench.", "how fast is [my model|a model|quern]?", "which command measures the speed?",
     "tell me about [quern bench|the bench command].", "how many tokens per second do I get?"),
    ('ls', 'quern ls', 'Use quern ls to list the models on your disk.',
     f"4: {HOW} [list|see|show|find] [my|the|all] models[| with quern| on my disk| that I have]?", "what does quern ls do?", "what is quern ls[| for]?", "what is the ls command[| for| of quern]?", "explain quern ls.", "which models do I have?", "what models [do I have|are there|are on my disk]?", "which command lists [the|my] models?",
     "tell me about [quern ls|the ls command].", "where are my models?"),
    ('inspect', 'quern inspect', 'Use quern inspect MODEL to show the keys, tensors and sizes of a model file.',
     f"4: {HOW} [see|show|look at|find out] what is in a model file?", f"{HOW} [inspect|examine|look into] a [model|GGUF file|model file][| with quern]?", "what does quern inspect do?", "what is quern inspect[| for]?", "what is the inspect command[| for| of quern]?", "explain quern inspect.", f"{HOW} see the [tensors|metadata|keys][| of a model]?",
     "which command shows what is in a model[| file]?", "tell me about [quern inspect|the inspect command]."),
    ('tokenize', 'quern tokenize', 'Use quern tokenize -m MODEL "some text" to print the token ids of a text.',
     f"4: {HOW} [tokenize|see the tokens of|get the tokens of|get the token ids of] a text?", f"{HOW} count [the |]tokens[| of a text| with quern]?", "what does quern tokenize do?", "what is quern tokenize[| for]?", "what is the tokenize command[| for| of quern]?", "explain quern tokenize.", "which command shows [the tokens|token ids]?",
     "how many tokens does my text have?", "tell me about [quern tokenize|the tokenize command]."),
    ('template', 'quern template', 'Use quern template to show how the chat template of a model writes a conversation.',
     f"3: {HOW} [see|show|test|try|render] [a|the] chat template?", "what does quern template do?", "what is quern template[| for]?", "what is the template command[| for| of quern]?", "explain quern template.", "which command shows the chat template?", "tell me about [quern template|the template command]."),
    ('perplexity', 'quern perplexity', 'Use quern perplexity to measure how well a model predicts a text. Lower is better.',
     f"3: {HOW} [measure|compute|find|get|calculate] [the |]perplexity[| of a model| with quern]?", "what does quern perplexity do?", "what is quern perplexity[| for]?", "what is the perplexity command[| for| of quern]?", "explain [quern |]perplexity.", "what is perplexity?", f"{HOW} measure [the quality of a model|how good a model is]?",
     "tell me about [quern perplexity|the perplexity command]."),
    ('quantize', 'quern quantize', 'Use quern quantize to make a model file smaller with fewer bits a weight.',
     f"3: {HOW} [quantize|quantise|shrink|compress] a model[| with quern| file]?", f"{HOW} make a model [file |][smaller|fit in memory]?", "what does quern quantize do?", "what is quern quantize[| for]?", "what is the quantize command[| for| of quern]?", "explain [quern |]quantize.", "which command makes a model smaller?",
     "tell me about [quern quantize|the quantize command].", "what is quantization?", "what does it mean to quantize a model?"),
    ('device', 'quern device', 'Use quern device to show what this machine can compute with. --measure measures its memory.',
     f"3: {HOW} see what [my machine|my computer|this machine] can [do|compute with]?", "what does quern device do?", "what is quern device[| for]?", "what is the device command[| for| of quern]?", "explain quern device.", "which command shows [my CPU|my machine|my computer]?", f"{HOW} measure [the|my] memory?",
     "tell me about [quern device|the device command].", f"{HOW} [show|see] [my CPU|my processor|instruction sets]?"),
    ('help', 'quern help', 'Use quern help to list the commands, and quern help VERB for the flags of one.',
     f"4: {HOW} get help[| with quern| in quern| about quern]?", "what does quern help do?", "what is quern help[| for]?", "what is the help command[| for| of quern]?", "explain quern help.", f"{HOW} [see|find|list|show] [the|all] flags[| of a command]?", "where is the [manual|documentation|help][| of quern]?", "where can I read more[| about quern]?",
     "tell me about [quern help|the help command].", "does quern have [a manual|help|documentation]?"),
    ('logits', 'quern logits', 'Use quern logits to write the logits of every token of a list to a file.',
     f"3: {HOW} [get|write|save|see] [the |]logits[| of a model| with quern]?", "what does quern logits do?", "what is quern logits[| for]?", "what is the logits command[| for| of quern]?", "explain quern logits.", "tell me about [quern logits|the logits command]."),
    ('dump', 'quern dump', 'Use quern dump graph or quern dump plan to see what a model became before it runs.',
     f"3: {HOW} [see|print|show|dump] the [graph|plan][| of a model]?", "what does quern dump do?", "what is quern dump[| for]?", "what is the dump command[| for| of quern]?", "explain quern dump.", "tell me about [quern dump|the dump command]."),
    ('version', 'quern version', 'Use quern version to print the version.',
     f"3: {HOW} [see|find|print|show|get] the version[| of quern]?", "what does quern version do?", "[which|what] version of quern do I have?", "what is the version command[| for]?", "what version is this?", "[which|what] version are you?"),
    ('verbs', 'run, chat', 'Quern has the commands run, chat, batch, bench, ls, inspect, tokenize, template, perplexity, quantize, device and help.',
     "3: [which|what] commands does quern have?", "what are the commands of quern?", "list the commands[| of quern].", "[which|what] [commands|verbs] are there[| in quern]?", "what are quern's commands?", "tell me the commands[| of quern].", "what can I type after quern?", "show me the commands of quern.", "name the commands of quern.", "list [all |]quern['s|] commands.", "what are the quern commands?", "which quern commands [are there|do you know]?", "how many commands does quern have?"),
    ('flag_m', '-m', '-m FILE chooses the model. Without it quern uses $QUERN_MODEL, or the built-in model.',
     "3: what does [the flag |the option |]-m do?", "what is -m[| for]?", "what does -m mean?", f"{HOW} [choose|select|pick|set|change|use another] model[| in quern| file]?", "which flag [chooses|sets|selects] the model?", "explain [the flag |]-m.", "tell me about -m.", f"{HOW} use [another|my own|a different] model?", "[which|what] flag is for the model?", "what is QUERN_MODEL?"),
    ('flag_p', '-p', '-p TEXT is the prompt, the text to continue.',
     "3: what does [the flag |the option |]-p do?", "what is -p[| for]?", "what does -p mean?", f"{HOW} [give|pass|set] [a|the] prompt[| to quern]?", "which flag [is|gives|sets] the prompt?", "explain [the flag |]-p.", "tell me about -p.", "what is a prompt?"),
    ('flag_f', '-f', '-f FILE reads the prompt from a file.',
     "3: what does [the flag |the option |]-f do?", "what is -f[| for]?", "what does -f mean?", f"{HOW} [read|take|load] [a|the] prompt from a file?", "which flag reads a file?", "explain [the flag |]-f.", "tell me about -f."),
    ('flag_n', '-n', '-n N sets how many tokens to generate at most.',
     "3: what does [the flag |the option |]-n do?", "what is -n[| for]?", "what does -n mean?", f"{HOW} [limit|set] the length of [the|an] answer?", f"{HOW} get [shorter|longer] answers?", "which flag [limits|sets] the [number of tokens|length]?", "explain [the flag |]-n.", "tell me about -n.", f"{HOW} [limit|set] the number of tokens?"),
    ('flag_c', '-c', '-c N sets the size of the context in tokens.',
     "3: what does [the flag |the option |]-c do?", "what is -c[| for]?", "what does -c mean?", f"{HOW} [set|change|raise] the context[| size| length]?", "which flag sets the context[| size]?", "explain [the flag |]-c.", "tell me about -c.", f"{HOW} get a [longer|larger|bigger] context?", "what is the context size?"),
    ('flag_t', '-t', '-t N sets the number of threads. 0 takes as many as the machine allows.',
     "3: what does [the flag |the option |]-t do?", "what is -t[| for]?", "what does -t mean?", f"{HOW} [set|change|limit] the number of [threads|cores]?", "which flag sets the threads?", "explain [the flag |]-t.", "tell me about -t.", "how many threads does quern use?", f"{HOW} use [more|fewer|all|two] [threads|cores]?"),
    ('flag_temp', '--temp', '--temp X sets the temperature. 0 always takes the most likely token; the default is 0.8.',
     "3: what does [the flag |the option |]--temp do?", "what is --temp[| for]?", "what does --temp mean?", f"{HOW} [set|change|lower|raise] the temperature?", "which flag sets the temperature?", "explain [the flag |]--temp.", "tell me about --temp.", "what is the temperature?", f"{HOW} make the answers [less|more] random?", "what is the default temperature?", f"{HOW} get the most likely answer?"),
    ('flag_seed', '--seed', '--seed N fixes the random numbers, so that the same prompt gives the same answer.',
     "3: what does [the flag |the option |]--seed do?", "what is --seed[| for]?", "what does --seed mean?", f"{HOW} [set|choose] the seed?", "which flag sets the seed?", "explain [the flag |]--seed.", "tell me about --seed.", "what is a seed?"),
    ('flag_topk', '--top-k', '--top-k N keeps only the N most likely tokens; the default is 40.',
     "2: what does [the flag |the option |]--top-k do?", "what is [--top-k|top-k|top k][| for]?", "what does --top-k mean?", f"{HOW} set top-k?", "explain [the flag |]--top-k.", "tell me about [--top-k|top-k]."),
    ('flag_topp', '--top-p', '--top-p X keeps the fewest tokens that are X likely together; the default is 0.95.',
     "2: what does [the flag |the option |]--top-p do?", "what is [--top-p|top-p|top p][| for]?", "what does --top-p mean?", f"{HOW} set top-p?", "explain [the flag |]--top-p.", "tell me about [--top-p|top-p]."),
    ('flag_minp', '--min-p', '--min-p X keeps only tokens at least X times as likely as the first; the default is 0.05.',
     "2: what does [the flag |the option |]--min-p do?", "what is [--min-p|min-p|min p][| for]?", "what does --min-p mean?", f"{HOW} set min-p?", "explain [the flag |]--min-p.", "tell me about [--min-p|min-p]."),
    ('flag_json', '--json', '--json prints one JSON object instead of text.',
     "3: what does [the flag |the option |]--json do?", "what is --json[| for]?", "what does --json mean?", f"{HOW} get [JSON|the output as JSON|JSON output]?", "which flag prints JSON?", "explain [the flag |]--json.", "tell me about --json.", "can quern print JSON?"),
    ('flag_v', '-v', '-v says what was chosen and why, and the timings.',
     "3: what does [the flag |the option |]-v do?", "what is -v[| for]?", "what does -v mean?", f"{HOW} see [the timings|what quern does|more details]?", "which flag shows the timings?", "explain [the flag |]-v.", "tell me about -v.", "is there a verbose mode?"),
    ('flag_stop', '--stop', '--stop TEXT ends the answer before this text.',
     "2: what does [the flag |the option |]--stop do?", "what is --stop[| for]?", "what does --stop mean?", f"{HOW} end the answer [at|before] a word?", f"{HOW} set a stop [word|text|string]?", "explain [the flag |]--stop.", "tell me about --stop."),
    ('flag_device', '--device', '--device chooses what computes: auto, cpu, ref or gpu.',
     "2: what does [the flag |the option |]--device do?", "what is --device[| for]?", "what does --device mean?", f"{HOW} choose [the|a] device?", "explain [the flag |]--device.", "tell me about --device."),
    ('exit', '0', 'Exit codes: 0 all well, 1 some items failed, 2 usage, 3 bad model file, 4 memory, 5 I/O, 6 GPU, 130 interrupted.',
     "3: what are the exit codes[| of quern]?", "[which|what] exit codes does quern have?", "list the exit codes[| of quern].", "what do the exit codes mean?", "tell me the exit codes.", "explain the exit codes[| of quern].", "what is the exit [status|code] of quern?", "which exit codes are there?"),
    ('exit_0', 'went well', 'Exit code 0 means that all went well.', "3: what does exit [code|status] 0 mean?", "what is exit [code|status] 0?", "what does it mean when quern exits with 0?", "quern [exits|ended|stopped] with 0, [what does that mean|why]?", "exit code 0?"),
    ('exit_1', 'failed', 'Exit code 1 means that some items failed.', "3: what does exit [code|status] 1 mean?", "what is exit [code|status] 1?", "what does it mean when quern exits with 1?", "quern [exits|ended|stopped] with 1, [what does that mean|why]?", "exit code 1?"),
    ('exit_2', 'usage', 'Exit code 2 means wrong usage, such as an unknown flag.', "3: what does exit [code|status] 2 mean?", "what is exit [code|status] 2?", "what does it mean when quern exits with 2?", "quern [exits|ended|stopped] with 2, [what does that mean|why]?", "exit code 2?"),
    ('exit_3', 'model', 'Exit code 3 means a bad model file.', "3: what does exit [code|status] 3 mean?", "what is exit [code|status] 3?", "what does it mean when quern exits with 3?", "quern [exits|ended|stopped] with 3, [what does that mean|why]?", "exit code 3?"),
    ('exit_4', 'memory', 'Exit code 4 means that there was not enough memory.', "3: what does exit [code|status] 4 mean?", "what is exit [code|status] 4?", "what does it mean when quern exits with 4?", "quern [exits|ended|stopped] with 4, [what does that mean|why]?", "exit code 4?"),
    ('exit_5', 'I/O', 'Exit code 5 means an I/O error, such as a file that cannot be read.', "3: what does exit [code|status] 5 mean?", "what is exit [code|status] 5?", "what does it mean when quern exits with 5?", "quern [exits|ended|stopped] with 5, [what does that mean|why]?", "exit code 5?"),
    ('exit_6', 'GPU', 'Exit code 6 means an error of the GPU.', "3: what does exit [code|status] 6 mean?", "what is exit [code|status] 6?", "what does it mean when quern exits with 6?", "quern [exits|ended|stopped] with 6, [what does that mean|why]?", "exit code 6?"),
    ('exit_130', 'interrupted', 'Exit code 130 means that quern was interrupted.', "3: what does exit [code|status] 130 mean?", "what is exit [code|status] 130?", "what does it mean when quern exits with 130?", "quern [exits|ended|stopped] with 130, [what does that mean|why]?", "exit code 130?"),
    ('gguf', 'file', 'GGUF is a file format for language models. One file holds the weights and the tokenizer.',
     "3: what is [GGUF|a GGUF file]?", "what's [GGUF|a GGUF file]?", "explain GGUF.", "what does GGUF mean?", "tell me about GGUF[| files].", "what is in a GGUF file?", "what is a model file?", "tell me what GGUF is.", "what are GGUF files?"),
    ('licence', 'MIT', 'Quern is free software under the MIT licence.',
     "3: what is the licen[s|c]e of quern?", "[which|what] licen[s|c]e does quern have?", "is quern [free|open source|free software]?", "under [which|what] licen[s|c]e is quern?", "what is quern's licen[s|c]e?", "can I [use|copy|change] quern [freely|for free|at work]?", "how much does quern cost?", "tell me the licen[s|c]e of quern.", "who can use quern?"),
    ('install', 'meson', 'Build quern with meson: meson setup build, then ninja -C build. The program is build/cmd/quern.',
     f"3: {HOW} [build|install|compile|get] quern?", "how is quern built?", "how do I build it?", "tell me how to install quern.", "what do I need to build quern?", "how to install?", "how do I compile quern from source?", "where is the program after the build?"),
    ('families', 'llama', 'Quern runs models of the families llama, qwen2, qwen3, qwen3moe, gemma2, gpt2 and phi3.',
     "3: [which|what] models [can quern run|does quern support|does quern run|are supported]?", "[which|what] [families|architectures] does quern [know|support|run]?", "can quern run [llama|qwen|gemma|mistral|phi] models?", "does quern [support|run] [llama|qwen|gemma|mistral|phi|mixtral]?", "list the [supported models|families|architectures].", "what model families are there?"),
    ('builtin', 'small', 'The built-in model is a very small model that the quern project trained. It is used when you give no -m.',
     "3: what is the built-in model?", "what is the built in model?", "what model is used without -m?", "what happens [without -m|when I give no model|if I give no model]?", "tell me about the built-in model.", "do I need [a model|to download a model]?", "is there a built-in model?", "which model does quern use by default?", "what is the default model?", "who made the built-in model?"),
    ('speed', 'vector', 'Quern uses the vector units of your CPU, such as AVX2, AVX-512 and NEON.',
     "[which|what] instruction sets does quern use?", "does quern use [AVX2|AVX-512|NEON|SIMD]?", "how does quern use the CPU?", "why is quern fast?", "what makes quern fast?", "is quern fast?", "does quern run on [ARM|an old computer]?"),
    ('gpu', 'no GPU', 'Quern runs on the CPU and needs no GPU.', "do I need a GPU?", "does quern need a GPU?", "[does|can] quern [run|work] without a GPU?", "can I [run|use] quern without a [GPU|graphics card]?", "does quern run on [a|the] CPU?", "is a GPU needed?", "does quern need a graphics card?", "can quern run on a laptop?"),
    ('run_flags', '-m', 'The most used flags of quern run are -m, -p, -f, -n, -c, -t, --temp, --seed and --json.', "3: [which|what] flags does quern run [have|take|know]?", "[which|what] options does quern [run |][have|take|know]?", "what are the [most used |][flags|options] of quern[| run]?", "list the [flags|options][| of quern run].", "tell me the flags of quern[| run].", "which flags are there?", "what flags can I use[| with quern run]?"),
    ('same_answer', '--seed', 'Use --seed N for the same answer each time, or --temp 0 for the most likely one.', f"{HOW} get [deterministic|reproducible|the same] [output|answers|results]?", "why is the answer different [each|every] time?", "why do I get [different|other] answers?", "is quern deterministic?", f"{HOW} make the output [deterministic|reproducible]?"),
    ('network', 'own computer', 'Quern runs on your own computer and needs no network. Your text stays with you.',
     "does quern need [the internet|a network|a connection]?", "is my text sent [anywhere|to a server|over the network]?", "does quern send my [data|text|prompts] [away|anywhere|to a server]?", "can I use quern offline?", "is quern private?", "does quern work [offline|without internet|without a network]?", "where does quern run?", "is quern a [server|cloud service|website]?"),
    ('language', 'C', 'Quern is written in C.', "what is quern written in?", "[which|what] [programming |]language is quern written in?", "in [which|what] language is quern written?", "is quern written in [C|Python|Rust|Go]?", "what language does quern use?", "which programming language was used for quern?", "tell me what quern is written in."),
    ('stdin', 'stdin', 'quern run reads the prompt from stdin when you give none, so you can pipe text into it.',
     f"{HOW} pipe [text|a file] into quern?", "can quern read [stdin|from a pipe|standard input]?", "does quern read stdin?", f"{HOW} use quern in a [pipe|script|shell script]?", "can I use quern in a [script|pipe]?"),
    ('stdout', 'stdout', 'The answer alone goes to stdout. Notes and errors go to stderr.',
     "where does the answer go?", "what goes to [stdout|stderr]?", "where do [errors|notes|messages] go?", "what does quern print[| to stdout| to stderr]?", f"{HOW} save the answer to a file?", f"{HOW} write the answer to a file?"),
    ('name', 'stone', 'A quern is a stone mill that grinds grain by hand. This program is named after it.',
     "what is a quern?", "why is quern called quern?", "what does [quern|the word quern|the name quern] mean?", "where does the name quern come from?", "why the name quern?", "what does the name mean?", "why is it called quern?"),
]


# For every row about a command, and for every one about a flag.
OF_COMMANDS = ("what is the purpose of {c}?", "how do I use {c}?", "how does {c} work?", "when do I use {c}?", "tell me what {c} does.", "what does the command {c} do?", "{c}?", "what can I do with {c}?",
               "can you explain {c}?", "[why|when] would I use {c}?", "describe {c}.")
OF_FLAGS = ("what does {c} do in quern?", "what does the {c} flag do?", "what does the {c} option do?", "what is the {c} flag[| for]?", "what is the [flag|option] {c} for?", "{c}?", "what is the meaning of {c}?",
            "how do I use {c}?", "describe {c}.", "can you explain {c}?", "what does {c} mean in quern?")


def lines_of(row):
    """The wordings of a row: its own, and those that every command or flag has."""
    kind, want, _, *lines = row
    if want == 'quern ' + kind:
        verb = want.removeprefix('quern ')
        lines += [line.replace('{c}', want) for line in OF_COMMANDS]
        lines += [f'what does the {verb} command do?', f'how do I use the {verb} command?', f'what is {verb} in quern?', f'what does {verb} do in quern?']
    if kind.startswith('flag_'):
        lines += [line.replace('{c}', want) for line in OF_FLAGS]
    return list(dict.fromkeys(lines))


def _row_maker(row):
    kind, want, answer = row[:3]
    grammar = Grammar(*lines_of(row))

    def make(speak):
        return Exchange('quern', speak.ask(grammar), answer, {'rule': 'says', 'want': [want], 'about': kind})
    return make


MAKERS = [_row_maker(row) for row in ROWS]


def about_quern(speak):
    return speak.pick(MAKERS)(speak)
