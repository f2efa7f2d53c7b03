"use strict";
// A regular expression as a machine: read into a tree, its places linked (Glushkov), sets of places made states,
// states that no word tells apart merged. It means what Python's re.fullmatch means by it.

const REGEX_STATES = 2000, REGEX_PLACES = 1000;

function parseRegex(text, alphabet) {
  let at = 0, places = 0;
  const named = new Set(), fail = what => { throw new Error(`${what} at character ${at + 1}`); };
  const digits = "0123456789", small = "abcdefghijklmnopqrstuvwxyz", word = digits + small + small.toUpperCase() + "_";
  const name = letters => { for (const each of letters) named.add(each); return [...letters]; };
  const but = letters => alphabet === null ? [] : [...alphabet].filter(each => !letters.includes(each));
  const empty = { kind: "empty" };

  function escaped() {
    const sign = text[at++];
    if (sign === undefined) fail("\\ needs a sign after it");
    if (sign === "d") return name(digits);
    if (sign === "w") return name(word);
    if (sign === "D") return but(name(digits));
    if (sign === "W") return but(name(word));
    if (/[a-zA-Z0-9]/.test(sign)) fail(`\\${sign} is not supported`);
    return name(sign);
  }
  function set() {
    const found = [], negated = text[at] === "^";
    if (negated) at += 1;
    if (text[at] === "]") fail("a set must have a letter; for the letter ] write \\]");
    while (text[at] !== "]") {
      if (at >= text.length) fail("a set [ is not closed");
      let letters = text[at] === "\\" ? (at += 1, escaped()) : [text[at++]];
      if (text[at] === "-" && letters.length === 1) {
        at += 1;
        if (at >= text.length || text[at] === "]") fail("a range has no end; for the letter - write \\-");
        const last = text[at] === "\\" ? (at += 1, escaped())[0] : text[at++];
        if (letters[0] > last) fail(`the range ${letters[0]}-${last} is empty`);
        const [low, high] = [letters[0].charCodeAt(0), last.charCodeAt(0)];
        letters = Array.from({ length: high - low + 1 }, (_, k) => String.fromCharCode(low + k));
      }
      found.push(...name(letters));
    }
    at += 1;
    return negated ? but(found) : found;
  }
  function letter(letters) {
    if (++places > REGEX_PLACES) fail("the expression is too long");
    return { kind: "letter", letters: new Set(letters) };
  }
  function atom() {
    const sign = text[at];
    if (sign === "(") {
      at += 1;
      if (text.startsWith("?:", at)) at += 2;
      else if (text[at] === "?") fail("(? is not supported, other than (?:");
      const inside = choice();
      if (text[at++] !== ")") fail("a group ( is not closed");
      return inside;
    }
    if ("*+?{".includes(sign)) fail(`nothing to repeat before ${sign}`);
    if ("^$&".includes(sign)) fail(`${sign} is not supported: the whole word is always matched`);
    at += 1;
    if (sign === "[") return letter(set());
    if (sign === ".") return letter(but([]));
    if (sign === "\\") return letter(escaped());
    return letter(name(sign));
  }
  function copy(tree) {
    if (tree.kind === "letter") return letter(tree.letters);
    return tree.parts ? { ...tree, parts: tree.parts.map(copy) } : tree;
  }
  function repeated() {
    let tree = atom();
    for (let counts; at < text.length && (counts = /^(?:([*+?])|\{(\d{0,4})(?:(,)(\d{0,4}))?\})/.exec(text.slice(at)));) {
      if (counts[2] === "" && !counts[4]) break;
      at += counts[0].length;
      if ("?+*".includes(text[at] || " ")) fail("lazy, possessive and double repetition are not supported");
      const least = counts[1] ? +(counts[1] === "+") : +counts[2];
      const most = counts[1] ? (counts[1] === "?" ? 1 : Infinity) : !counts[3] ? least : counts[4] ? +counts[4] : Infinity;
      if (least > most) fail("a repetition's largest count is below its smallest");
      const parts = Array.from({ length: least }, (_, k) => k ? copy(tree) : tree);
      if (most === Infinity) parts.push({ kind: "star", parts: [least ? copy(tree) : tree] });
      else for (let k = least; k < most; k++) parts.push({ kind: "or", parts: [empty, k ? copy(tree) : tree] });
      tree = { kind: "and", parts };
    }
    return tree;
  }
  function chain() {
    const parts = [];
    while (at < text.length && !"|)".includes(text[at])) parts.push(repeated());
    return { kind: "and", parts };
  }
  function choice() {
    const parts = [chain()];
    while (text[at] === "|") { at += 1; parts.push(chain()); }
    return parts.length === 1 ? parts[0] : { kind: "or", parts };
  }
  const tree = choice();
  if (at < text.length) fail("a ) without its (");
  return { tree, named: [...named].sort().join("") };
}

function linkPlaces(tree) { // for each place its letters, and the places that may come next; place 0 is the start
  const letters = [new Set()], next = [new Set()];
  const link = (from, to) => { for (const each of from) for (const other of to) next[each].add(other); };
  function visit({ kind, letters: own, parts }) {
    if (kind === "empty") return { first: [], last: [], nullable: true };
    if (kind === "letter") {
      letters.push(own);
      next.push(new Set());
      return { first: [next.length - 1], last: [next.length - 1], nullable: false };
    }
    const found = parts.map(visit);
    if (kind === "star") {
      link(found[0].last, found[0].first);
      return { ...found[0], nullable: true };
    }
    const join = name => [...new Set(found.flatMap(each => each[name]))];
    if (kind === "or") return { first: join("first"), last: join("last"), nullable: found.some(each => each.nullable) };
    return found.reduce((one, two) => {
      link(one.last, two.first);
      return {
        first: one.nullable ? [...one.first, ...two.first] : one.first,
        last: two.nullable ? [...one.last, ...two.last] : two.last,
        nullable: one.nullable && two.nullable,
      };
    }, { first: [], last: [], nullable: true });
  }
  const { first, last, nullable } = visit(tree);
  link([0], first);
  return { letters, next, accepting: new Set(nullable ? [0, ...last] : last) };
}

function regexMachine(pattern, alphabet = "") {
  if (pattern.length > 2000) throw new Error("the expression is too long");
  const symbols = [...(alphabet || parseRegex(pattern, null).named)];
  if (!symbols.length) throw new Error("the expression names no letter: give the alphabet");
  if (new Set(symbols).size < symbols.length) throw new Error("the alphabet must hold each letter once");
  if (symbols.some(each => /[\s,]/.test(each))) throw new Error("letters must be no commas and no white space");
  const { tree, named } = parseRegex(pattern, symbols);
  const outside = [...named].filter(each => !symbols.includes(each));
  if (outside.length) throw new Error(`the alphabet lacks ${outside.join(" ")}`);
  const { letters, next, accepting } = linkPlaces(tree);
  const sets = [[0]], number = new Map([["0", 0]]), transitions = [];
  for (let at = 0; at < sets.length; at++) {
    const reach = new Set(sets[at].flatMap(place => [...next[place]]));
    transitions.push(symbols.map(symbol => {
      const to = [...reach].filter(place => letters[place].has(symbol)).sort((a, b) => a - b), key = to.join();
      if (!number.has(key)) {
        number.set(key, sets.length);
        if (sets.push(to) > REGEX_STATES) throw new Error(`the machine has more than ${REGEX_STATES} states`);
      }
      return number.get(key);
    }));
  }
  const accepts = sets.map(set => +set.some(place => accepting.has(place)));
  const outputs = transitions.map(row => row.map(state => accepts[state]));
  return { ...minimise({ transitions, outputs, start: 0 }, accepts), noAnswer: null, symbols };
}

// States that accept and those that do not stay apart; then they are split by where they lead, until that is stable.
function minimise({ transitions, outputs, start }, accepts) {
  const classes = keys => { const seen = new Map(); return keys.map(key => seen.get(key) ?? (seen.set(key, seen.size), seen.size - 1)); };
  let block = classes(accepts), count = 0;
  while (count !== (count = new Set(block).size)) {
    block = classes(transitions.map((row, state) => [block[state], ...row.map(each => block[each])].join()));
  }
  const order = [block[start]], first = new Map(block.map((each, state) => [each, state]).reverse());
  for (const each of order) {
    for (const to of transitions[first.get(each)]) if (!order.includes(block[to])) order.push(block[to]);
  }
  const renamed = new Map(order.map((each, place) => [each, place]));
  return {
    transitions: order.map(each => transitions[first.get(each)].map(to => renamed.get(block[to]))),
    outputs: order.map(each => outputs[first.get(each)]),
    start: 0,
  };
}
