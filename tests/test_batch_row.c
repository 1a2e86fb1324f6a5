// Tests how one record of a batch becomes a row: what each field means, and what is refused in which words. Then each of its
// allocations fails once: the error says so, or the row is what it is otherwise, and nothing leaks.
#include "cmd/batch/batch_row.h"
#include "engine/json.h"
#include "tests/arena_faults.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct row_case {
    enum batch_format format;
    enum row_kind kind;            // what prompts become
    const char *template, *system; // NULL: none
    bool ignore_unknown;
    const char *record, *becomes; // the row as print_row shows it, or "code: error"
};

// clang-format off
static const struct row_case cases[] = {
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"seed\": 5}",
     "completion row-3 (own) prompt=\"a\" seed=5"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"seed\": -5}",
     "completion row-3 (own) prompt=\"a\" seed=18446744073709551611"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"seed\": 18446744073709551615}",
     "completion row-3 (own) prompt=\"a\" seed=18446744073709551615"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"seed\": -18446744073709551615}",
     "invalid_request: seed: integer where a whole number of 64 bits is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"seed\": 18446744073709551616}",
     "invalid_request: seed: integer where a whole number of 64 bits is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"seed\": 184467440737095516150}",
     "invalid_request: seed: integer where a whole number of 64 bits is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"seed\": \"x\"}",
     "invalid_request: seed: string where a whole number of 64 bits is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"seed\": null}",
     "completion row-3 (own) prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"stop\": \"x\"}",
     "completion row-3 (own) prompt=\"a\" stop=\"x\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"stop\": [\"x\", \"y\"]}",
     "completion row-3 (own) prompt=\"a\" stop=\"x\" stop=\"y\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"stop\": \"\"}",
     "invalid_request: stop: an empty string"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"stop\": 5}",
     "invalid_request: stop: integer where a string or a list of strings is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"stop\": [5]}",
     "invalid_request: stop: integer where a string or a list of strings is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"stop\": []}",
     "completion row-3 (own) prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"stop\": [\"\"]}",
     "invalid_request: stop: an empty string"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"stop\": [\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\",\"x\"]}",
     "invalid_request: stop: more than 64 strings"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"stop_token_ids\": [1, 2]}",
     "completion row-3 (own) prompt=\"a\" stop_ids=[1, 2]"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"stop_token_ids\": 5}",
     "invalid_request: stop_token_ids: integer where a list of token ids is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"stop_token_ids\": [1, \"x\"]}",
     "invalid_request: stop_token_ids[1]: string where a token id is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"temperature\": \"hot\"}",
     "invalid_request: temperature: string where a number is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"temperature\": 101}",
     "invalid_request: temperature: 101: from 0 to 100"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"temperature\": NaN}",
     "invalid_json: line 5, column 32: a value expected, not 'N'"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"top_p\": 2}",
     "invalid_request: top_p: 2: from 0 to 1"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"min_p\": -1}",
     "invalid_request: min_p: -1: from 0 to 1"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"frequency_penalty\": 3}",
     "invalid_request: frequency_penalty: 3: from -2 to 2"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"presence_penalty\": -3}",
     "invalid_request: presence_penalty: -3: from -2 to 2"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"repeat_penalty\": 0}",
     "invalid_request: repeat_penalty: 0: from 0.01 to 100"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"repetition_penalty\": 1000}",
     "invalid_request: repetition_penalty: 1000: from 0.01 to 100"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"repetition_penalty\": 1.5}",
     "completion row-3 (own) prompt=\"a\" repeat_penalty=1.5"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"top_k\": -1}",
     "completion row-3 (own) prompt=\"a\" top_k=0"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"top_k\": -2}",
     "invalid_request: top_k: -2: from -1 to 1073741824"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"top_k\": 1.5}",
     "invalid_request: top_k: 1.5 is no whole number"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"top_k\": \"x\"}",
     "invalid_request: top_k: string where a whole number is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"max_tokens\": -1}",
     "invalid_request: max_tokens: -1: from 0 to 1073741824"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"max_completion_tokens\": 5}",
     "invalid_request: body.max_completion_tokens: a field that quern does not know"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"min_tokens\": 5, \"max_tokens\": 4}",
     "invalid_request: min_tokens: 5, where max_tokens is 4"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"min_tokens\": -1}",
     "invalid_request: min_tokens: -1: from 0 to 1073741824"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"prompt_logprobs\": 21}",
     "invalid_request: prompt_logprobs: 21: from 0 to 20"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"n\": 0}",
     "invalid_request: n: 0: from 1 to 128"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"n\": 129}",
     "invalid_request: n: 129: from 1 to 128"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"ignore_eos\": 5}",
     "invalid_request: ignore_eos: integer where true or false is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"return_token_ids\": \"x\"}",
     "invalid_request: return_token_ids: string where true or false is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"logprobs\": 5}",
     "completion row-3 (own) prompt=\"a\" logprobs=5"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"logprobs\": 21}",
     "invalid_request: logprobs: 21: from 0 to 20"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"logprobs\": true}",
     "invalid_request: logprobs: boolean where a whole number is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"top_logprobs\": 5}",
     "invalid_request: body.top_logprobs: a field that quern does not know"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"best_of\": 1}",
     "completion row-3 (own) prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"best_of\": 2}",
     "invalid_request: best_of: 2, where n is 1: every answer is given, none is chosen"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"n\": 2, \"best_of\": 2}",
     "completion row-3 (own) prompt=\"a\" n=2"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"best_of\": 0}",
     "invalid_request: best_of: 0: from 1 to 128"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"suffix\": \"\"}",
     "completion row-3 (own) prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"suffix\": \"x\"}",
     "invalid_request: suffix: not supported"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"suffix\": 5}",
     "invalid_request: suffix: not supported"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"logits_processors\": []}",
     "completion row-3 (own) prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"logits_processors\": [\"x\"]}",
     "invalid_request: logits_processors: a row cannot bring code"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"logits_processors\": 5}",
     "invalid_request: logits_processors: a row cannot bring code"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"stream\": false}",
     "completion row-3 (own) prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"stream\": true}",
     "invalid_request: stream: a batch does not stream"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"stream\": 5}",
     "invalid_request: stream: integer where true or false is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"use_beam_search\": true}",
     "invalid_request: use_beam_search: answers are sampled, there is no beam search"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"skip_special_tokens\": false}",
     "invalid_request: skip_special_tokens: the text of an answer has no special tokens; return_token_ids gives their ids"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"include_stop_str_in_output\": true}",
     "invalid_request: include_stop_str_in_output: an answer ends before its stop string"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"add_special_tokens\": false}",
     "invalid_request: add_special_tokens: a prompt begins as the tokenizer says; one that is a list of ids is taken as it is"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"add_special_tokens\": true}",
     "completion row-3 (own) prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"spaces_between_special_tokens\": true}",
     "completion row-3 (own) prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"spaces_between_special_tokens\": 5}",
     "invalid_request: spaces_between_special_tokens: integer where true or false is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"echo\": true}",
     "completion row-3 (own) prompt=\"a\" echo"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"echo\": 5}",
     "invalid_request: echo: integer where true or false is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"model\": \"m\"}",
     "completion row-3 (own) model=m prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"model\": 5}",
     "invalid_request: model: integer where a string is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"logit_bias\": {\"1\": 5}}",
     "completion row-3 (own) prompt=\"a\" bias={\"1\": 5}"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"logit_bias\": []}",
     "invalid_request: logit_bias: array where an object is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"tools\": []}",
     "invalid_request: body.tools: a field that quern does not know"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"unknown\": 5}",
     "invalid_request: body.unknown: a field that quern does not know"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"unknown\": null}",
     "completion row-3 (own) prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"messages\": []}",
     "invalid_request: a body has one of prompt and messages, this one has both"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"response_format\": {\"type\": \"text\"}}",
     "completion row-3 (own) prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"response_format\": {\"type\": \"json_object\"}}",
     "completion row-3 (own) prompt=\"a\" object"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"response_format\": {\"type\": \"json_object\", \"schema\": {\"properties\": {}}}}",
     "completion row-3 (own) prompt=\"a\" schema guide={\"type\": \"object\", \"properties\": {}}"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"response_format\": {\"type\": \"json_object\", \"schema\": {\"a\": 1, \"b\": 2, \"c\": 3, \"d\": 4, \"e\": 5, \"f\": 6, \"g\": 7, \"h\": 8}}}",
     "completion row-3 (own) prompt=\"a\" schema guide={\"type\": \"object\", \"a\": 1, \"b\": 2, \"c\": 3, \"d\": 4, \"e\": 5, \"f\": 6, \"g\": 7, \"h\": 8}"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"response_format\": {\"type\": \"json_object\", \"schema\": {\"type\": \"array\"}}}",
     "completion row-3 (own) prompt=\"a\" schema guide={\"type\": \"array\"}"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"response_format\": {\"type\": \"json_object\", \"schema\": true}}",
     "completion row-3 (own) prompt=\"a\" schema guide=true"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"response_format\": {\"type\": \"json_schema\"}}",
     "invalid_request: response_format.json_schema.schema is missing"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"response_format\": {\"type\": \"json_schema\", \"json_schema\": 5}}",
     "invalid_request: json_schema: integer where an object is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {}}}",
     "invalid_request: response_format.json_schema.schema is missing"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": {}}}}",
     "completion row-3 (own) prompt=\"a\" schema guide={}"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"response_format\": {\"type\": \"xml\"}}",
     "invalid_request: response_format.type: \"xml\"; text, json_object or json_schema"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"response_format\": {}}",
     "invalid_request: response_format.type: text, json_object or json_schema"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"response_format\": 5}",
     "invalid_request: response_format: integer where an object is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"guided_json\": {\"type\": \"object\"}}",
     "completion row-3 (own) prompt=\"a\" schema guide={\"type\": \"object\"}"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"guided_json\": \"{\\\"type\\\": \\\"object\\\"}\"}",
     "completion row-3 (own) prompt=\"a\" schema guide={\"type\": \"object\"}"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"guided_json\": \"{\"}",
     "invalid_request: guided_json: line 1, column 2: a key in quotes expected, but the text ends"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"guided_json\": 5}",
     "invalid_request: guided_json: integer where a schema is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"guided_grammar\": \"root ::= \\\"a\\\"\"}",
     "completion row-3 (own) prompt=\"a\" grammar guide=\"root ::= \\\"a\\\"\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"guided_grammar\": \"\"}",
     "invalid_request: guided_grammar: an empty string"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"guided_grammar\": 5}",
     "invalid_request: guided_grammar: integer where a string is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"guided_regex\": \"a+\"}",
     "completion row-3 (own) prompt=\"a\" regex guide=\"a+\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"guided_regex\": 5}",
     "invalid_request: guided_regex: integer where a string is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"guided_choice\": [\"a\", \"b\"]}",
     "completion row-3 (own) prompt=\"a\" choice guide=[\"a\", \"b\"]"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"guided_choice\": []}",
     "invalid_request: guided_choice: an empty list"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"guided_choice\": 5}",
     "invalid_request: guided_choice: integer where a list of strings is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"guided_choice\": [5]}",
     "invalid_request: guided_choice: integer where a string is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"guided_choice\": [\"\"]}",
     "invalid_request: guided_choice: an empty string"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"grammar\": \"x\"}",
     "completion row-3 (own) prompt=\"a\" grammar guide=\"x\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"guided_json\": {}, \"guided_regex\": \"x\"}",
     "invalid_request: guided_regex: the body asks for another form of the answer, too"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"structured_outputs\": {\"json\": {}}}",
     "completion row-3 (own) prompt=\"a\" schema guide={}"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"structured_outputs\": {\"json_object\": true}}",
     "completion row-3 (own) prompt=\"a\" object"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"structured_outputs\": {\"json_object\": false}}",
     "completion row-3 (own) prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"structured_outputs\": {\"json_object\": 5}}",
     "invalid_request: structured_outputs.json_object: integer where true or false is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"structured_outputs\": {\"grammar\": \"x\"}}",
     "completion row-3 (own) prompt=\"a\" grammar guide=\"x\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"structured_outputs\": {\"regex\": \"x\"}}",
     "completion row-3 (own) prompt=\"a\" regex guide=\"x\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"structured_outputs\": {\"choice\": [\"x\"]}}",
     "completion row-3 (own) prompt=\"a\" choice guide=[\"x\"]"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"structured_outputs\": {\"choice\": null}}",
     "completion row-3 (own) prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"structured_outputs\": {\"whitespace\": 5}}",
     "invalid_request: structured_outputs.whitespace: not supported"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"structured_outputs\": 5}",
     "invalid_request: structured_outputs: integer where an object is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"structured_outputs\": {\"regex\": \"a\", \"grammar\": \"b\"}}",
     "invalid_request: structured_outputs.grammar: the body asks for another form of the answer, too"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, true, "{\"prompt\": \"a\", \"unknown\": 5}",
     "completion row-3 (own) prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, true, "{\"prompt\": \"a\", \"logits_processors\": 5}",
     "completion row-3 (own) prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, true, "{\"prompt\": \"a\", \"stream\": true}",
     "completion row-3 (own) prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, true, "{\"prompt\": \"a\", \"messages\": [{\"role\": \"user\", \"content\": \"b\"}]}",
     "chat row-3 (own) messages=[{\"role\": \"user\", \"content\": \"b\"}]"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": 5}",
     "invalid_request: prompt: a string, a list of strings, of token ids, or of lists of them"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": []}",
     "invalid_request: prompt: a string, a list of strings, of token ids, or of lists of them"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": [1, 2]}",
     "completion row-3 (own) prompt=[1, 2]"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": [\"a\", \"b\"]}",
     "completion row-3 (own) prompt=[\"a\", \"b\"]"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": [[1], \"a\", [2, 3]]}",
     "completion row-3 (own) prompt=[[1], \"a\", [2, 3]]"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": [[]]}",
     "invalid_request: prompt[0]: neither a string nor a list of token ids"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": [\"a\", 5]}",
     "invalid_request: prompt[1]: neither a string nor a list of token ids"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": [[\"a\"]]}",
     "invalid_request: prompt[0]: neither a string nor a list of token ids"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": null}",
     "invalid_request: neither a batch line nor an object with a prompt, messages, input or text; --template makes a prompt of other fields"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"input\": \"a\"}",
     "embedding row-3 (own) prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"input\": [\"a\", \"b\"], \"dimensions\": 5, \"encoding_format\": \"base64\"}",
     "embedding row-3 (own) prompt=[\"a\", \"b\"] dimensions=5 base64"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"input\": \"a\", \"dimensions\": 0}",
     "invalid_request: dimensions: 0: from 1 to 2147483647"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"input\": \"a\", \"dimensions\": 1.5}",
     "invalid_request: dimensions: 1.5 is no whole number"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"input\": \"a\", \"encoding_format\": \"float\"}",
     "embedding row-3 (own) prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"input\": \"a\", \"encoding_format\": \"hex\"}",
     "invalid_request: encoding_format: \"float\" or \"base64\" is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"input\": \"a\", \"encoding_format\": 5}",
     "invalid_request: encoding_format: integer where \"float\" or \"base64\" is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"input\": 5}",
     "invalid_request: input: a string, a list of strings, of token ids, or of lists of them"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"input\": \"a\", \"temperature\": 1}",
     "invalid_request: body.temperature: a field that quern does not know"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"input\": \"a\", \"model\": \"m\", \"user\": \"u\"}",
     "embedding row-3 (own) model=m prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"text\": \"a\"}",
     "completion row-3 (own) prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"text\": 5}",
     "invalid_request: neither a batch line nor an object with a prompt, messages, input or text; --template makes a prompt of other fields"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"other\": 5}",
     "invalid_request: neither a batch line nor an object with a prompt, messages, input or text; --template makes a prompt of other fields"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{}",
     "invalid_request: neither a batch line nor an object with a prompt, messages, input or text; --template makes a prompt of other fields"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "[]",
     "invalid_request: line 5: array where an object is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "5",
     "invalid_request: line 5: integer where an object is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "\"a\"",
     "invalid_request: line 5: string where an object is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "null",
     "invalid_request: line 5: null where an object is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{",
     "invalid_json: line 5, column 2: a key in quotes expected, but the text ends"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"a\": 1,}",
     "invalid_json: line 5, column 9: a key in quotes expected, not '}'"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"a\": 1} x",
     "invalid_json: line 5, column 10: the end of the text expected, not 'x'"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"prompt\": \"b\"}",
     "completion row-3 (own) prompt=\"b\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"id\": \"x\"}",
     "completion x prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"id\": 7}",
     "completion 7 prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"custom_id\": \"c\", \"id\": \"x\"}",
     "completion c prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"id\": \"\"}",
     "invalid_request: custom_id: a string is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"id\": 1.5}",
     "invalid_request: custom_id: a string is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"a\", \"id\": null}",
     "completion row-3 (own) prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"prompt\": \"\\ud800\"}",
     "invalid_json: line 5, column 13: half of a surrogate pair"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": 5}",
     "invalid_request: messages: a list of {role, content} is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": []}",
     "invalid_request: messages: a list of {role, content} is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [5]}",
     "invalid_request: messages[0]: no object with a role"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": 5}]}",
     "invalid_request: messages[0]: no object with a role"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\"}]}",
     "invalid_request: messages[0]: no content"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"system\", \"content\": null}]}",
     "invalid_request: messages[0]: no content"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"developer\", \"content\": []}]}",
     "invalid_request: messages[0]: no content"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}]}",
     "chat row-3 (own) messages=[{\"role\": \"user\", \"content\": \"\"}]"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"assistant\"}]}",
     "chat row-3 (own) messages=[{\"role\": \"assistant\"}]"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"tool\"}]}",
     "chat row-3 (own) messages=[{\"role\": \"tool\"}]"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"tool_calls\": [1]}]}",
     "chat row-3 (own) messages=[{\"role\": \"user\", \"tool_calls\": [1]}]"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"logprobs\": true}",
     "chat row-3 (own) messages=[{\"role\": \"user\", \"content\": \"a\"}] logprobs=0"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"logprobs\": true, \"top_logprobs\": 5}",
     "chat row-3 (own) messages=[{\"role\": \"user\", \"content\": \"a\"}] logprobs=5"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"top_logprobs\": 5}",
     "invalid_request: top_logprobs: needs logprobs to be true"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"logprobs\": 5}",
     "invalid_request: logprobs: integer where true or false is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"top_logprobs\": 21, \"logprobs\": true}",
     "invalid_request: top_logprobs: 21: from 0 to 20"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"max_completion_tokens\": 5}",
     "chat row-3 (own) messages=[{\"role\": \"user\", \"content\": \"a\"}] max_tokens=5"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"max_completion_tokens\": -5}",
     "invalid_request: max_completion_tokens: -5: from 0 to 1073741824"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"add_special_tokens\": false}",
     "chat row-3 (own) messages=[{\"role\": \"user\", \"content\": \"a\"}]"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"add_special_tokens\": 5}",
     "invalid_request: add_special_tokens: integer where true or false is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"echo\": true}",
     "invalid_request: body.echo: a field that quern does not know"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"prompt\": \"b\"}",
     "invalid_request: a body has one of prompt and messages, this one has both"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"chat_template_kwargs\": {\"a\": 1}}",
     "chat row-3 (own) messages=[{\"role\": \"user\", \"content\": \"a\"}] kwargs={\"a\": 1}"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"chat_template_kwargs\": 5}",
     "invalid_request: chat_template_kwargs: integer where an object is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"reasoning_effort\": \"low\"}",
     "chat row-3 (own) messages=[{\"role\": \"user\", \"content\": \"a\"}] kwargs={\"reasoning_effort\": \"low\"}"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"reasoning_effort\": 5}",
     "invalid_request: reasoning_effort: integer where a string is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"reasoning_effort\": \"low\", \"chat_template_kwargs\": {\"a\": 1}}",
     "chat row-3 (own) messages=[{\"role\": \"user\", \"content\": \"a\"}] kwargs={\"a\": 1, \"reasoning_effort\": \"low\"}"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"add_generation_prompt\": false}",
     "chat row-3 (own) messages=[{\"role\": \"user\", \"content\": \"a\"}] not begun"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"add_generation_prompt\": 5}",
     "invalid_request: add_generation_prompt: integer where true or false is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"continue_final_message\": 5}",
     "invalid_request: continue_final_message: integer where true or false is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"continue_final_message\": true}",
     "invalid_request: continue_final_message: the last message is not the assistant's"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": 5}",
     "invalid_request: tools: integer where a list is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"parallel_tool_calls\": 5}",
     "invalid_request: parallel_tool_calls: integer where true or false is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"parallel_tool_calls\": false, \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}]}",
     "chat row-3 (own) messages=[{\"role\": \"user\", \"content\": \"a\"}] tools=[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}] one call"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}]}",
     "chat row-3 (own) messages=[{\"role\": \"user\", \"content\": \"a\"}] tools=[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}]"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}], \"tool_choice\": \"auto\"}",
     "chat row-3 (own) messages=[{\"role\": \"user\", \"content\": \"a\"}] tools=[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}]"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}], \"tool_choice\": \"none\"}",
     "chat row-3 (own) messages=[{\"role\": \"user\", \"content\": \"a\"}]"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}], \"tool_choice\": \"required\"}",
     "chat row-3 (own) messages=[{\"role\": \"user\", \"content\": \"a\"}] tools=[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}] calls"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}], \"tool_choice\": \"sometimes\"}",
     "invalid_request: tool_choice: \"sometimes\"; auto, none, required or a function"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}], \"tool_choice\": 5}",
     "invalid_request: tool_choice: integer where a string or an object is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}], \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"f\"}}}",
     "chat row-3 (own) messages=[{\"role\": \"user\", \"content\": \"a\"}] tools=[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}] calls chosen={\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}], \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"g\"}}}",
     "invalid_request: tool_choice: no tool has the name \"g\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}], \"tool_choice\": {\"type\": \"other\"}}",
     "invalid_request: tool_choice: an object other than {\"type\": \"function\", \"function\": {\"name\"}}"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}], \"tool_choice\": {\"type\": \"function\"}}",
     "invalid_request: tool_choice: an object other than {\"type\": \"function\", \"function\": {\"name\"}}"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}], \"tool_choice\": {}}",
     "invalid_request: tool_choice: an object other than {\"type\": \"function\", \"function\": {\"name\"}}"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tool_choice\": \"required\"}",
     "invalid_request: tool_choice: there are no tools"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [5]}",
     "invalid_request: tools[0]: an object with a function and its name is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [\"f\"]}",
     "invalid_request: tools[0]: an object with a function and its name is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [null]}",
     "invalid_request: tools[0]: an object with a function and its name is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [[]]}",
     "invalid_request: tools[0]: an object with a function and its name is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{}]}",
     "invalid_request: tools[0]: an object with a function and its name is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"function\": {}}]}",
     "invalid_request: tools[0]: an object with a function and its name is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"function\": {\"name\": \"\"}}]}",
     "invalid_request: tools[0]: an object with a function and its name is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"name\": 5}]}",
     "invalid_request: tools[0]: an object with a function and its name is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [5], \"tool_choice\": \"required\"}",
     "invalid_request: tools[0].function.name: a string is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"function\": {\"name\": 5}}], \"tool_choice\": \"required\"}",
     "invalid_request: tools[0].function.name: a string is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}], \"tool_choice\": \"required\", \"guided_regex\": \"a\"}",
     "invalid_request: tool_choice: the body asks for another form of the answer, too"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}], \"continue_final_message\": true}",
     "chat row-3 (own) messages=[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}] not begun continues"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}], \"continue_final_message\": true, \"add_generation_prompt\": true}",
     "invalid_request: continue_final_message: add_generation_prompt is true, too"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}], \"continue_final_message\": true, \"add_generation_prompt\": false}",
     "chat row-3 (own) messages=[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}] not begun continues"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\", \"tool_calls\": [{}]}], \"continue_final_message\": true}",
     "invalid_request: continue_final_message: the last message calls tools"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"custom_id\": \"i\", \"url\": \"/v1/completions\", \"body\": {\"prompt\": \"a\"}}",
     "completion i prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"custom_id\": \"i\", \"url\": \"/v1/chat/completions\", \"method\": \"POST\", \"body\": {\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}}",
     "chat i messages=[{\"role\": \"user\", \"content\": \"a\"}]"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"custom_id\": \"i\", \"url\": \"/v1/embeddings\", \"body\": {\"input\": \"a\"}}",
     "embedding i prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"custom_id\": \"i\", \"url\": \"/v1/nothing\", \"body\": {}}",
     "invalid_url: url: \"/v1/nothing\" is none of /v1/chat/completions, /v1/completions, /v1/embeddings"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"custom_id\": \"i\", \"url\": 5, \"body\": {}}",
     "invalid_request: url is missing"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"custom_id\": \"i\", \"body\": {}}",
     "invalid_request: url is missing"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"custom_id\": \"i\", \"url\": \"/v1/completions\", \"method\": \"GET\", \"body\": {}}",
     "invalid_request: method: only POST is supported"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"custom_id\": \"i\", \"url\": \"/v1/completions\", \"method\": 5, \"body\": {}}",
     "invalid_request: method: only POST is supported"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"custom_id\": \"i\", \"url\": \"/v1/completions\", \"body\": 5}",
     "invalid_request: body: an object is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"custom_id\": \"i\", \"url\": \"/v1/completions\"}",
     "invalid_request: body: an object is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"custom_id\": \"i\", \"url\": \"/v1/completions\", \"body\": {}}",
     "invalid_request: prompt is missing"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"url\": \"/v1/completions\", \"body\": {}}",
     "invalid_request: custom_id is missing"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"custom_id\": \"\", \"url\": \"/v1/completions\", \"body\": {}}",
     "invalid_request: custom_id: a string is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"custom_id\": 7, \"url\": \"/v1/completions\", \"body\": {\"prompt\": \"a\"}}",
     "completion 7 prompt=\"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, NULL, NULL, false, "{\"custom_id\": 7.5, \"url\": \"/v1/completions\", \"body\": {\"prompt\": \"a\"}}",
     "invalid_request: custom_id: a string is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, "<{{ a }}> {{b}}", NULL, false, "{\"a\": \"x\", \"b\": [1, \"y\"]}",
     "completion row-3 (own) prompt=\"<x> [1, \\\"y\\\"]\""},
    {FORMAT_JSONL, ROW_COMPLETION, "{{a", NULL, false, "{\"a\": \"x\"}",
     "invalid_request: --template: {{ without }}"},
    {FORMAT_JSONL, ROW_COMPLETION, "a}} {{a}}", NULL, false, "{\"a\": \"x\"}",
     "completion row-3 (own) prompt=\"a}} x\""},
    {FORMAT_JSONL, ROW_COMPLETION, "{{a}}", NULL, false, "{\"a\": \"\"}",
     "completion row-3 (own) prompt=\"\""},
    {FORMAT_JSONL, ROW_COMPLETION, "{{b}}", NULL, false, "{\"a\": 1}",
     "invalid_request: --template: the row has no field \"b\"; it has \"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, "{{b}}", NULL, false, "{}",
     "invalid_request: --template: the row has no field \"b\""},
    {FORMAT_JSONL, ROW_COMPLETION, "{{ }}", NULL, false, "{\"a\": 1}",
     "invalid_request: --template: the row has no field \" \"; it has \"a\""},
    {FORMAT_JSONL, ROW_COMPLETION, "{{b}}", NULL, false, "{\"a\": 1, \"c\": 2, \"d\": 3, \"e\": 4, \"f\": 5, \"g\": 6, \"h\": 7}",
     "invalid_request: --template: the row has no field \"b\"; it has \"a\", \"c\", \"d\", \"e\", \"f\", \"g\" and others"},
    {FORMAT_JSONL, ROW_COMPLETION, "{{b}}", NULL, false, "{\"\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\": 1}",
     "invalid_request: --template: the row has no field \"b\"; it has \"\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251\303\251..\""},
    {FORMAT_JSONL, ROW_COMPLETION, "{{b}}", NULL, false, "{\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\": 1}",
     "invalid_request: --template: the row has no field \"b\"; it has \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\""},
    {FORMAT_JSONL, ROW_COMPLETION, "{{id}}", NULL, false, "{\"id\": \"x\"}",
     "completion x prompt=\"x\""},
    {FORMAT_JSONL, ROW_COMPLETION, "{{a}}", NULL, false, "{\"a\": 5, \"id\": []}",
     "invalid_request: custom_id: a string is wanted"},
    {FORMAT_JSONL, ROW_COMPLETION, "{{a}}", NULL, false, "5",
     "invalid_request: line 5: integer where an object is wanted"},
    {FORMAT_JSONL, ROW_CHAT, "{{a}}", NULL, false, "{\"a\": \"x\"}",
     "chat row-3 (own) messages=[{\"role\": \"user\", \"content\": \"x\"}]"},
    {FORMAT_JSONL, ROW_CHAT, "{{a}}", "be brief", false, "{\"a\": \"x\"}",
     "chat row-3 (own) messages=[{\"role\": \"system\", \"content\": \"be brief\"}, {\"role\": \"user\", \"content\": \"x\"}]"},
    {FORMAT_JSONL, ROW_EMBEDDING, "{{a}}", NULL, false, "{\"a\": \"x\"}",
     "embedding row-3 (own) prompt=\"x\""},
    {FORMAT_JSONL, ROW_CHAT, NULL, NULL, false, "{\"text\": \"x\"}",
     "chat row-3 (own) messages=[{\"role\": \"user\", \"content\": \"x\"}]"},
    {FORMAT_JSONL, ROW_CHAT, NULL, "be brief", false, "{\"text\": \"x\"}",
     "chat row-3 (own) messages=[{\"role\": \"system\", \"content\": \"be brief\"}, {\"role\": \"user\", \"content\": \"x\"}]"},
    {FORMAT_LINES, ROW_COMPLETION, NULL, NULL, false, "some text",
     "completion row-3 (own) prompt=\"some text\""},
    {FORMAT_LINES, ROW_CHAT, NULL, NULL, false, "some text",
     "chat row-3 (own) messages=[{\"role\": \"user\", \"content\": \"some text\"}]"},
    {FORMAT_LINES, ROW_COMPLETION, "<{{text}}>", NULL, false, "some text",
     "completion row-3 (own) prompt=\"<some text>\""},
    {FORMAT_LINES, ROW_COMPLETION, "<{{line}}>", NULL, false, "some text",
     "invalid_request: --template: the row has no field \"line\"; it has \"text\""},
    {FORMAT_CSV, ROW_COMPLETION, NULL, NULL, false, "x,y,z",
     "completion x prompt=\"z\""},
    {FORMAT_CSV, ROW_COMPLETION, NULL, NULL, false, "x,y",
     "invalid_row: 2 fields, the header has 3"},
    {FORMAT_CSV, ROW_COMPLETION, NULL, NULL, false, "x,y,z,w",
     "invalid_row: 4 fields, the header has 3"},
    {FORMAT_CSV, ROW_COMPLETION, NULL, NULL, false, "\"x,1\",\"y \"\"q\"\"\",z",
     "completion x,1 prompt=\"z\""},
    {FORMAT_CSV, ROW_COMPLETION, NULL, NULL, false, ",y,z",
     "completion row-3 (own) prompt=\"z\""},
    {FORMAT_CSV, ROW_COMPLETION, NULL, NULL, false, ",,",
     "completion row-3 (own) prompt=\"\""},
    {FORMAT_CSV, ROW_COMPLETION, NULL, NULL, false, "x,\"y",
     "invalid_row: 2 fields, the header has 3"},
    {FORMAT_CSV, ROW_COMPLETION, NULL, NULL, false, "id7,b,c",
     "completion id7 prompt=\"c\""},
    {FORMAT_CSV, ROW_COMPLETION, "{{a}}-{{text}}", NULL, false, "x,y,z",
     "completion x prompt=\"y-z\""},
    {FORMAT_TSV, ROW_COMPLETION, NULL, NULL, false, "x\ty\tz",
     "completion x prompt=\"z\""},
    {FORMAT_TSV, ROW_COMPLETION, NULL, NULL, false, "\"x\"\ty\tz",
     "completion \"x\" prompt=\"z\""},
    {FORMAT_TSV, ROW_COMPLETION, NULL, NULL, false, "x",
     "invalid_row: 1 fields, the header has 3"},
};
// clang-format on

static void print_value(struct text *out, const char *name, const struct value *v)
{
    struct error err;
    if (!v)
        return;
    text_print(out, " %s=", name);
    cr_assert_eq(json_write_text(v, NULL, out, &err), 0, "%s", err.text);
}

static void print_number(struct text *out, const char *name, double number, double unset)
{
    if (!isnan(number) && number != unset)
        text_print(out, " %s=%.17g", name, number);
}

static void print_settings(struct text *out, const struct row_settings *s)
{
    print_number(out, "temperature", s->temperature, NAN);
    print_number(out, "top_p", s->top_p, NAN);
    print_number(out, "min_p", s->min_p, NAN);
    print_number(out, "repeat_penalty", s->repeat_penalty, NAN);
    print_number(out, "top_k", (double)s->top_k, -1);
    print_number(out, "max_tokens", (double)s->max_tokens, -1);
    print_number(out, "logprobs", (double)s->n_logprobs, -1);
    print_number(out, "n", (double)s->n, 1);
    text_print(out, "%s", s->echo ? " echo" : "");
    if (s->has_seed)
        text_print(out, " seed=%llu", (unsigned long long)s->seed);
}

// What a row has beyond the defaults.
static void print_row(struct text *out, const struct batch_row *row)
{
    static const char *const kinds[] = {"completion", "chat", "embedding"};
    static const char *const guides[] = {"", " object", " schema", " grammar", " regex", " choice", " calls"};
    text_print(out, "%s %.*s%s", kinds[row->kind], STR_ARG(row->custom_id), row->own_id ? " (own)" : "");
    if (row->model.data)
        text_print(out, " model=%.*s", STR_ARG(row->model));
    print_value(out, "prompt", row->prompt);
    print_value(out, "messages", row->messages);
    print_value(out, "tools", row->tools);
    print_value(out, "kwargs", row->kwargs);
    print_value(out, "bias", row->bias);
    print_value(out, "stop_ids", row->stop_ids);
    for (int i = 0; i < row->n_stops; i++)
        print_value(out, "stop", row->stops[i]);
    if (row->kind != ROW_EMBEDDING)
        print_settings(out, &row->settings);
    print_number(out, "dimensions", (double)row->dimensions, 0);
    text_print(out, "%s%s%s%s%s", row->base64 ? " base64" : "", row->no_answer_begun ? " not begun" : "",
               row->continues ? " continues" : "", row->one_call ? " one call" : "", guides[row->guide]);
    print_value(out, "guide", row->guide_value);
    print_value(out, "chosen", row->chosen);
}

static const struct str columns[] = {{"id", 2}, {"a", 1}, {"text", 4}};

// The row of a record as text, into `out`. Returns -1 with err if it is refused.
static int parse(const struct row_case *c, struct text *out, struct error *err)
{
    struct batch_row row = {.arena = {0}};
    const struct record record = {.number = 3, .line = 5, .bytes = str_from(c->record)};
    struct row_form form = {.format = c->format, .kind = c->kind, .ignore_unknown = c->ignore_unknown};
    form.prompt = c->template ? str_from(c->template) : (struct str){0};
    form.system = c->system ? str_from(c->system) : (struct str){0};
    form.fields = columns;
    form.n_fields = COUNT_OF(columns);
    const char *code = "";
    const int status = batch_row_parse(&row, &record, &form, &code, err);
    const struct fault armed = memory_fault; // what prints the row does not fail
    memory_fault.after = -1;
    if (status)
        text_print(out, "%s: %s", code, err->text);
    else
        print_row(out, &row);
    text_append(out, (struct str){"", 1});
    batch_row_free(&row);
    memory_fault.after = armed.after;
    return status;
}

Test(batch_row, records_become_rows_or_are_refused)
{
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct text got = {0};
        struct error err = {0};
        const int status = parse(&cases[i], &got, &err);
        cr_expect_str_eq(got.data, cases[i].becomes, "%s: %s, not %s", cases[i].record, got.data, cases[i].becomes);
        cr_expect(!status || err.code == E_USAGE, "%s: %s", cases[i].record, err.text);
        text_free(&got);
    }
}

// Records that were cut out of the input wrongly, or are no text.
Test(batch_row, records_that_are_none_are_refused)
{
    static const struct {
        struct record record;
        const char *code, *says;
    } bad[] = {
        {{.number = 3, .line = 5, .bytes = {"a", 1}, .is_too_long = true}, "invalid_row", "line 5: longer than 64 MiB"},
        {{.number = 3, .line = 5, .bytes = {"\"a", 2}, .is_open = true},
         "invalid_row",
         "line 5: a quote that nothing closes"},
        {{.number = 3, .line = 5, .bytes = {"a\xff", 2}}, "invalid_utf8", "line 5: not UTF-8"},
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        const struct row_form form = {.format = FORMAT_CSV, .fields = columns, .n_fields = COUNT_OF(columns)};
        struct batch_row row = {.arena = {0}};
        struct error err = {0};
        const char *code = "";
        cr_expect_eq(batch_row_parse(&row, &bad[i].record, &form, &code, &err), -1);
        cr_expect_str_eq(code, bad[i].code);
        cr_expect_str_eq(err.text, bad[i].says);
        batch_row_free(&row);
    }
}

Test(batch_row, a_row_has_as_many_prompts_as_are_allowed)
{
    for (int n = ROW_PROMPTS_MOST; n <= ROW_PROMPTS_MOST + 1; n++) {
        struct text record = {0}, got = {0};
        struct error err = {0};
        text_print(&record, "{\"prompt\": [\"a\"");
        for (int i = 1; i < n; i++)
            text_append(&record, STR_LIT(", \"a\""));
        text_append(&record, STR_LIT("]}\0"));
        const int status = parse(&(struct row_case){.format = FORMAT_JSONL, .record = record.data}, &got, &err);
        cr_expect_eq(status, n > ROW_PROMPTS_MOST ? -1 : 0);
        cr_expect(!status || !strcmp(err.text, "prompt: 2049 of them, limit 2048"), "%s", err.text);
        text_free(&record);
        text_free(&got);
    }
}

static void fail_each(const struct row_case *c)
{
    const long live = heap_live;
    long n = 0;
    do {
        struct text got = {0};
        struct error err = {0};
        fault_arm(&memory_fault, n++);
        const int status = parse(c, &got, &err);
        fault_disarm(&memory_fault);
        const bool refused = status && err.code == E_MEMORY && strstr(err.text, "memory");
        // an error may leave out what would help
        const bool same = status ? !strncmp(got.data, c->becomes, strlen(got.data)) : !strcmp(got.data, c->becomes);
        cr_expect(refused || same, "%s, allocation %ld: %s, not %s", c->record, n, got.data, c->becomes);
        text_free(&got);
        cr_assert_eq(heap_live, live, "%s, allocation %ld: %ld blocks leak", c->record, n, heap_live - live);
    } while (memory_fault.fired);
}

Test(batch_row, records_without_memory_say_so)
{
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        fail_each(&cases[i]);
}
