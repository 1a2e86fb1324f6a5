// The grammars and texts of bench_grammar. Constants; bench_grammar.c, which defines struct grammar_case, includes it.
#ifndef QUERN_GRAMMAR_CASES_H
#define QUERN_GRAMMAR_CASES_H

#define JSON_TEXT                                                                                                       \
    "{\"name\": \"The old mill at Overbridge\", \"built\": 1742, \"open\": true, \"owners\": [{\"name\": \"Ada "        \
    "Millward\", \"share\": 0.625, \"contact\": {\"email\": \"ada@example.org\", \"phone\": null}}, {\"name\": "        \
    "\"J\\u00f8rgen S\\u00f8gaard\", \"share\": 0.375, \"contact\": {\"email\": \"js@example.dk\", \"phone\": "         \
    "\"+45 20 12 34 56\"}}], \"notes\": \"It grinds wheat, rye and \\\"ancient\\\" spelt.\\nClosed on Mondays; guided " \
    "tours at 10:30 and 14:00 — book ahead, 20 people at most. Wear sturdy shoes.\", \"coordinates\": [55.6761, "     \
    "12.5683, -3.5e-2], \"tags\": [\"mill\", \"water\", \"history\", \"bread\", \"museum\"]}"

#define JSON_GBNF                                                                                                      \
    "root ::= value\n"                                                                                                 \
    "value ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n"                                   \
    "object ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)*)? ws \"}\"\n"                        \
    "array ::= \"[\" ws (value (\",\" ws value)*)? ws \"]\"\n"                                                         \
    "string ::= \"\\\"\" ([^\"\\\\\\x00-\\x1F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" [0-9a-fA-F]{4}))* \"\\\"\"\n"        \
    "number ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15}) (\".\" [0-9]+)? ([eE] [-+]? [0-9]{1,3})?\n"                         \
    "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n"

#define MILL_SCHEMA                                                                                                             \
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"built\":{\"type\":\"integer\",\"minimum\":1000,"     \
    "\"maximum\":2030},\"open\":{\"type\":\"boolean\"},\"owners\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/owner\"}}," \
    "\"notes\":{\"type\":\"string\",\"maxLength\":500},\"coordinates\":{\"type\":\"array\",\"items\":{\"type\":\"number\"},"    \
    "\"minItems\":2,\"maxItems\":3},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^[a-z]+$\"}}},"   \
    "\"required\":[\"name\",\"built\",\"tags\"],\"additionalProperties\":false,\"$defs\":{\"owner\":{\"type\":\"object\","      \
    "\"properties\":{\"name\":{\"type\":\"string\"},\"share\":{\"type\":\"number\",\"minimum\":0,\"maximum\":1},\"contact\":{"  \
    "\"type\":\"object\",\"properties\":{\"email\":{\"type\":\"string\",\"format\":\"email\"},\"phone\":{\"type\":[\"string\"," \
    "\"null\"]}},\"required\":[\"email\"]}},\"required\":[\"name\",\"share\"]}}}"

static const struct grammar_case cases[] = {
    {"json gbnf", false, JSON_GBNF, JSON_TEXT},
    {"any json", true, "{}", JSON_TEXT},
    {"schema", true, MILL_SCHEMA, JSON_TEXT},
    {"strings 1-2000", true,
     "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":2000},\"maxItems\":20}",
     "[\"Counted characters: a mill grinds wheat, rye and spelt between two stones.\", \"The lower one lies still.\", \"The "
     "upper one is turned by water, wind or hand.\"]"},
    {"patterns", true,
     "{\"type\":\"object\",\"properties\":{\"id\":{\"pattern\":\"^[A-Z]{2}-[0-9]{4,8}$\"},\"at\":{\"format\":\"date-time\"},"
     "\"mail\":{\"format\":\"email\"},\"link\":{\"format\":\"uri\"},\"price\":{\"type\":\"number\",\"minimum\":0.01,"
     "\"multipleOf\":0.01}},\"required\":[\"id\",\"at\",\"mail\",\"link\",\"price\"]}",
     "{\"id\": \"AB-12345\", \"at\": \"2026-01-15T12:00:00Z\", \"mail\": \"ada.millward@example.org\", \"link\": "
     "\"https://example.org/mills/7?open=yes\", \"price\": 12.50}"},
    {"text", false, "root ::= [^\\x00-\\x08]*", JSON_TEXT},
    {"string{1,300}", false, "root ::= \"\\\"\" [^\"\\\\\\x00-\\x1F]{1,300} \"\\\"\"",
     "\"Counted characters: a mill grinds wheat, rye and spelt between two stones, of which the lower one lies still. "
     "The upper one is turned by water, wind or hand, and is dressed anew every few weeks.\""},
    {"arithmetic", false,
     "root ::= (expr \"=\" term \"\\n\")+\nexpr ::= term ([-+*/] term)*\nterm ::= ident | num | \"(\" expr \")\"\n"
     "ident ::= [a-z] [a-z0-9_]*\nnum ::= [0-9]+\n",
     "a+b*(c-12)=total_1\nx/(y*y)=z\n(((a+1)*b)+2)*c=9\n"},
};

#endif
