#!/usr/bin/env python3
"""Checks the grammars of JSON Schemas by an independent validator (the module jsonschema).

    check_schemas.py TOOL random N [SEED]     N random schemas: every answer must be valid
    check_schemas.py TOOL suite FOLDER...     files of the JSON Schema test suite: what is invalid must be rejected,
                                              what is valid accepted, but for what docs/sampling.md says is narrower
TOOL is grammar_tool, which this program talks to over a pipe.
"""
import decimal, json, pathlib, random, subprocess, sys

import jsonschema


class Tool:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the tool ended at {request}")
        return json.loads(line)


# --- random schemas ---

NAMES = ["a", "b", "name", "x y", "é", "id", "tags", "\"q\"", "long_property_name"]
STRINGS = ["", "a", "foo", "é€", "a\"b", "\n", "true"]
PATTERNS = ["^a+$", "foo", "^[a-z]{2,4}$", "\\d", "^(a|bc)*$", "[^a-f]$", "^\\w+-\\d{2}$", "^.{1,3}$", "^(?!a)[a-z]*$"]
FORMATS = ["date", "time", "date-time", "email", "uuid", "ipv4", "ipv6", "uri", "hostname"]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def some(self, options, least=1):
        n = self.r.randint(min(least, len(options)), min(len(options), 3))
        return self.r.sample(options, n)

    def scalar(self):
        r = self.r
        return r.choice([None, True, False, 0, 1, -3, 2.5, 1e3, r.choice(STRINGS), r.randint(-50, 50)])

    def number(self):
        r = self.r
        s = {"type": r.choice(["integer", "number"])}
        low = r.choice([r.randint(-200, 200), round(r.uniform(-20, 20), 2)])
        if r.random() < 0.5:
            s[r.choice(["minimum", "exclusiveMinimum"])] = low
        if r.random() < 0.5:
            s[r.choice(["maximum", "exclusiveMaximum"])] = low + r.randint(2, 400)
        if r.random() < 0.3:
            s["multipleOf"] = r.choice([2, 3, 7, 10] + ([0.5, 0.25] if s["type"] == "number" else []))
            s.pop("exclusiveMaximum", None)
            s.pop("maximum", None)
        return s

    def string(self):
        r, s = self.r, {"type": "string"}
        kind = r.random()
        if kind < 0.35:
            s["minLength"] = r.randint(0, 4)
            s["maxLength"] = s["minLength"] + r.randint(0, 60)
        elif kind < 0.6:
            s["pattern"] = r.choice(PATTERNS)
            if r.random() < 0.3:
                s["maxLength"] = r.randint(4, 12)
        elif kind < 0.75:
            s["format"] = r.choice(FORMATS)
        return s

    def array(self, depth):
        r, s = self.r, {"type": "array"}
        if r.random() < 0.8:
            s["items"] = self.schema(depth - 1)
        if r.random() < 0.3:
            s["prefixItems"] = [self.schema(depth - 1) for _ in range(r.randint(1, 3))]
        if r.random() < 0.4:
            s["minItems"] = r.randint(0, 3)
        if r.random() < 0.5:
            s["maxItems"] = s.get("minItems", 0) + r.randint(0, 4)
        if r.random() < 0.15:
            s["contains"] = self.scalar_schema()
        if r.random() < 0.1:
            return {"type": "array", "items": {"enum": [1, "a", None, True]}, "uniqueItems": True, "minItems": r.randint(0, 3)}
        return s

    def object(self, depth):
        r, s = self.r, {"type": "object"}
        names = self.some(NAMES)
        if r.random() < 0.9:
            s["properties"] = {n: self.schema(depth - 1) for n in names}
        if r.random() < 0.6:
            s["required"] = self.some(names + ["id"])
        if r.random() < 0.5:
            s["additionalProperties"] = r.choice([False, True, self.schema(depth - 1)])
        if r.random() < 0.15:
            s["patternProperties"] = {r.choice(["^a", "\\d$", "^x-"]): self.schema(depth - 1)}
        if r.random() < 0.1:
            s["propertyNames"] = {"maxLength": r.randint(4, 20)}
        if r.random() < 0.1:
            s["minProperties"] = 1
        if r.random() < 0.1:
            s["maxProperties"] = r.randint(3, 5)
        if r.random() < 0.1:
            s["dependentRequired"] = {names[0]: [r.choice(NAMES)]}
        return s

    def scalar_schema(self):
        r = self.r
        return r.choice([lambda: {"const": self.scalar()}, lambda: {"enum": [self.scalar() for _ in range(3)]}, self.number,
                         self.string, lambda: {"type": "boolean"}, lambda: {"type": "null"},
                         lambda: {"type": ["string", "null"]}])()

    def combined(self, depth):
        r = self.r
        kind = r.choice(["anyOf", "oneOf", "allOf", "if", "not", "$ref"])
        if kind == "if":
            return {"if": self.scalar_schema(), "then": self.schema(depth - 1), "else": self.schema(depth - 1)}
        if kind == "not":
            return {"not": self.scalar_schema()}
        if kind == "$ref":
            return {"$ref": "#/$defs/" + r.choice(["tree", "leaf"])}
        if kind == "allOf":
            same = r.choice([self.number, self.string, lambda: self.object(depth - 1)])
            return {"allOf": [same(), same()]}
        return {kind: [self.schema(depth - 1) for _ in range(r.randint(2, 3))]}

    def schema(self, depth):
        r = self.r
        if depth <= 0:
            return self.scalar_schema()
        return r.choice([self.scalar_schema, lambda: self.array(depth), lambda: self.object(depth),
                         lambda: self.object(depth), lambda: self.combined(depth)])()

    def document(self):
        s = self.schema(3)
        s["$defs"] = {"leaf": self.scalar_schema(),
                      "tree": {"type": "object", "properties": {"value": {"$ref": "#/$defs/leaf"},
                                                                "children": {"type": "array", "maxItems": 3,
                                                                             "items": {"$ref": "#/$defs/tree"}}},
                               "required": ["value"]}}
        return s


def exact(text):
    return json.loads(text, parse_float=decimal.Decimal)


def validator(schema):
    cls = jsonschema.Draft202012Validator
    return cls(schema, format_checker=cls.FORMAT_CHECKER)


def run_random(tool, n, seed):
    made = refused = answers = limits = 0
    why = {}
    for i in range(n):
        text = json.dumps(Maker(seed + i).document())
        got = tool.ask(schema=text, open=i % 2 == 0, samples=4, seed=seed + i)
        if "error" in got:
            refused += 1
            key = got["error"].split(": ", 2)[-1]
            why[key] = why.get(key, 0) + 1
            continue
        made += 1
        check = validator(exact(text))
        for sample in got["samples"]:
            if sample is None:
                limits += 1
                continue
            answers += 1
            errors = [e.message for e in check.iter_errors(exact(sample))]
            if errors:
                raise SystemExit(f"seed {seed + i}\nschema: {text}\nanswer: {sample}\n{errors[0]}")
    print(f"{made} schemas, {answers} answers, all valid; {limits} cut at their limit; {refused} schemas refused:")
    for key, count in sorted(why.items(), key=lambda item: -item[1]):
        print(f"  {count:4} {key}")


def run_suite(tool, folders):
    wrong, narrow, refused, right = [], [], {}, 0
    for folder in folders:
        for path in sorted(pathlib.Path(folder).rglob("*.json")):
            for group in json.loads(path.read_text()):
                texts = [json.dumps(t["data"], ensure_ascii=False, separators=(",", ":")) for t in group["tests"]]
                got = tool.ask(schema=json.dumps(group["schema"]), open=True, texts=texts)
                if "error" in got:
                    key = f"{path.stem}: {got['error']}"
                    # a schema that nothing meets is rightly refused
                    if "no value meets it" in got["error"]:
                        bad = [t for t in group["tests"] if t["valid"]]
                        right += len(group["tests"]) - len(bad)
                        wrong += []
                        narrow += [f"{path.stem}: {group['description']}: {t['description']}" for t in bad]
                    else:
                        refused[key] = refused.get(key, 0) + len(group["tests"])
                    continue
                for test, accepted in zip(group["tests"], got["accepts"]):
                    name = f"{path.stem}: {group['description']}: {test['description']}"
                    if accepted == test["valid"]:
                        right += 1
                    elif accepted:
                        wrong.append(name)
                    else:
                        narrow.append(name)
    for title, names in (("INVALID BUT ACCEPTED", wrong), ("valid but not made", narrow)):
        print(f"{title}: {len(names)}")
        for name in names:
            print("  ", name)
    print(f"right: {right}; refused by name: {sum(refused.values())}")
    for key, count in sorted(refused.items()):
        print(f"  {count:4} {key}")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) < 4:
        raise SystemExit(__doc__)
    the_tool = Tool(sys.argv[1])
    if sys.argv[2] == "random":
        run_random(the_tool, int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    else:
        sys.exit(run_suite(the_tool, sys.argv[3:]))
