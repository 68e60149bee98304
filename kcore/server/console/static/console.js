// The console of a kcore node. It fetches one JSON document every few seconds and shows it. Names of groups, clients
// and topics come from clients: they are only ever set as text, never as markup.

const REFRESH_MS = 3000;
const TIMEOUT_MS = 9000;
const main = document.getElementById("main");
const status = document.getElementById("status");
const number = new Intl.NumberFormat("en");
let timer = 0;
let turn = 0;       // increases with every refresh: a response to an earlier one is dropped
let previous = null; // the last document about the node, for rates

// ---- elements

/** Makes an element. Children are elements or texts; a text never becomes markup. */
function make(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (name.startsWith("data-")) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.map((child) => (child instanceof Node ? child : visible(String(child)))));
  return element;
}

/** Replaces characters that are invisible or change the direction of the text around them. */
function visible(text) {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (each) => `\\u{${each.codePointAt(0).toString(16)}}`);
}

function count(value) {
  return make("span", {}, value === null || value === undefined ? "–" : number.format(value));
}

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

function duration(seconds) {
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  for (const [size, unit] of units) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  return `${Math.round(seconds * 1000)} ms`;
}

const CLASS_OF_STATE = {
  Stable: "good", CompleteCommit: "good", CompleteAbort: "faint", Empty: "faint", Dead: "faint",
  NotReady: "bad", PreparingRebalance: "busy", CompletingRebalance: "busy", Assigning: "busy", Reconciling: "busy",
  Ongoing: "busy", PrepareCommit: "busy", PrepareAbort: "busy",
};

function state(name) {
  return make("span", { className: CLASS_OF_STATE[name] ?? "" }, name);
}

function lag(value) {
  return make("span", { className: value ? "busy" : "" }, value === null ? "many offsets" : number.format(value));
}

/** Makes a table. A column is [heading, true for numbers, function from a row to its content]. */
function table(columns, rows) {
  const heads = columns.map(([heading, right]) => make("th", { className: right ? "number" : "" }, heading));
  const body = rows.map((row) =>
    make("tr", {}, ...columns.map(([, right, cell]) => make("td", { className: right ? "number" : "" }, cell(row)))));
  if (!rows.length) body.push(make("tr", {}, make("td", { colSpan: columns.length, className: "faint" }, "none")));
  return make("div", { className: "scroll" },
    make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...body)));
}

function card(title, value, className = "") {
  return make("div", { className: "card" }, make("b", { className }, value), make("span", {}, title));
}

/** Makes the line below a list: its size and buttons for other pages. */
function pages(list, field, route) {
  const go = (page) => () => visit(route.path, { ...route.query, [field]: page });
  return make("div", { className: "pages" },
    make("button", { type: "button", disabled: list.page <= 1, onclick: go(list.page - 1) }, "Previous"),
    `page ${list.page} of ${list.pages}, ${number.format(list.total)} in total`,
    make("button", { type: "button", disabled: list.page >= list.pages, onclick: go(list.page + 1) }, "Next"));
}

// ---- routes: #/groups?search=x

function current() {
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  return { path: path || "/", query: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

function address(path, query) {
  const kept = Object.entries(query).filter(([, value]) => value !== "" && value !== undefined);
  return `#${path}${kept.length ? "?" + new URLSearchParams(kept) : ""}`;
}

function visit(path, query) {
  const target = address(path, query);
  if (location.hash === target) refresh();
  else location.hash = target;
}

function link(text, path, query) {
  return make("a", { href: address(path, query) }, text);
}

/** Makes the search form of a list; `choices` has the values of each selection by field. */
function search(route, choices) {
  const submit = (event) => {
    event?.preventDefault();
    const values = Object.fromEntries(new FormData(form));
    visit(route.path, values);
  };
  const input = make("input", { type: "search", name: "search", placeholder: "Search", maxLength: 250, value: route.query.search ?? "" });
  input.setAttribute("aria-label", "Search");
  const selections = Object.entries(choices).map(([field, values]) => {
    const selection = make("select", { name: field, onchange: submit },
      make("option", { value: "" }, `any ${field}`), ...values.map((value) => make("option", { value }, value)));
    selection.value = route.query[field] ?? "";
    selection.setAttribute("aria-label", field);
    return selection;
  });
  const form = make("form", { onsubmit: submit }, input, ...selections, make("button", {}, "Search"));
  return form;
}

// ---- views: each has the path of its document, and a function that shows the document

const TYPES = ["classic", "consumer", "share", "streams"];
const GROUP_STATES = ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Assigning", "Reconciling", "NotReady"];
const TRANSACTION_STATES = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"];

function showNode(node) {
  const elapsed = previous && node.uptime_s > previous.uptime_s ? node.uptime_s - previous.uptime_s : 0;
  const rate = (field) => (elapsed ? Math.max(0, (node[field] - previous[field]) / elapsed) : null);
  const shown = (value, unit) => (value === null ? "–" : unit === "B" ? `${bytes(value)}/s` : `${number.format(Math.round(value))}/s`);
  const cards = [
    card("requests", shown(rate("requests"))),
    card("commits", shown(rate("commits"))),
    card("records in", shown(rate("received_records"))),
    card("bytes in", shown(rate("received_bytes"), "B")),
    card("bytes out", shown(rate("sent_bytes"), "B")),
    card("connections", number.format(node.connections)),
    card("topics", number.format(node.topics)),
    card("partitions", number.format(node.partitions)),
    card("late transactions", number.format(node.late_transaction_partitions), node.late_transaction_partitions ? "bad" : ""),
    card("failed commits", number.format(node.failed_commits), node.failed_commits ? "bad" : ""),
    card("partitions that are not loaded", number.format(node.not_ready), node.not_ready ? "bad" : ""),
    card("uptime", duration(node.uptime_s)),
  ];
  previous = node;
  const rows = Object.entries(node.groups).flatMap(([type, states]) =>
    Object.entries(states).filter(([, n]) => n).map(([name, n]) => ({ type, name, n })));
  const ids = Object.entries(node.transactional_ids).filter(([, n]) => n).map(([name, n]) => ({ name, n }));
  return [
    make("h2", {}, `Node ${node.node_id}`),
    make("p", { className: "faint" }, `kcore ${node.version}, cluster ${node.cluster_id}`),
    make("div", { className: "cards" }, ...cards),
    make("h3", {}, "Groups"),
    table([["Type", false, (row) => row.type],
      ["State", false, (row) => link(state(row.name), "/groups", { type: row.type, state: row.name })],
      ["Groups", true, (row) => count(row.n)]], rows),
    make("h3", {}, "Transactional ids"),
    table([["State", false, (row) => link(state(row.name), "/transactions", { state: row.name })],
      ["Ids", true, (row) => count(row.n)]], ids),
  ];
}

/** Shows a name that a client chose; only one that is complete leads to a page of its own. */
function name(row, path) {
  return row.whole ? link(row.id === "" ? "(empty)" : row.id, path, { id: row.id }) : row.id;
}

function showGroups(list, route) {
  const note = list.loading ? [make("p", { className: "bad" }, `${list.loading} partitions of the coordinator are not loaded; their groups are missing.`)] : [];
  return [
    make("h2", {}, "Groups"), ...note,
    table([["Group", false, (row) => name(row, "/group")], ["Type", false, (row) => row.type],
      ["State", false, (row) => state(row.state)], ["Members", true, (row) => count(row.members)],
      ["Lag", true, (row) => lag(row.lag)]], list.rows),
    pages(list, "page", route),
  ];
}

function assigned(row) {
  const parts = row.assigned.map((each) => {
    const more = each.count > each.numbers.length ? `, … (${number.format(each.count)})` : "";
    return make("div", {}, `${each.topic}: ${each.numbers.join(", ")}${more}`);
  });
  return parts.length ? make("div", {}, ...parts) : make("span", { className: "faint" }, "–");
}

function showGroup(group, route) {
  const members = [["Member", false, (row) => row.id], ["Instance", false, (row) => row.instance_id],
    ["Client", false, (row) => row.client_id], ["Host", false, (row) => row.client_host],
    ["Epoch", true, (row) => count(row.epoch)], ["Partitions", true, (row) => count(row.partitions)],
    ["Assigned", false, assigned]];
  const offsets = [["Topic", false, (row) => link(row.topic, "/topic", { name: row.topic })],
    ["Partition", true, (row) => row.partition], ["Offset", true, (row) => count(row.offset)],
    ["End", true, (row) => count(row.end < 0 ? null : row.end)], ["Lag", true, (row) => lag(row.lag)],
    ["", false, (row) => (row.pending ? make("span", { className: "busy" }, "in a transaction") : "")]];
  return [
    make("h2", {}, group.id),
    make("div", { className: "cards" }, card("type", group.type), card("state", state(group.state)),
      card("epoch", number.format(group.epoch)), card("members", number.format(group.members.total)),
      card("lag", lag(group.lag)), ...(group.protocol ? [card("protocol", group.protocol)] : [])),
    make("h3", {}, "Members"), table(members, group.members.rows), pages(group.members, "members", route),
    make("h3", {}, "Offsets"), table(offsets, group.offsets.rows), pages(group.offsets, "offsets", route),
  ];
}

function showTopics(list, route) {
  return [
    make("h2", {}, "Topics"),
    table([["Topic", false, (row) => link(row.name, "/topic", { name: row.name })],
      ["", false, (row) => (row.internal ? make("span", { className: "faint" }, "internal") : "")],
      ["Partitions", true, (row) => count(row.partitions)], ["Records", true, (row) => count(row.records)],
      ["Bytes in", true, (row) => bytes(row.received_bytes)], ["Bytes out", true, (row) => bytes(row.sent_bytes)]], list.rows),
    pages(list, "page", route),
  ];
}

function showTopic(topic, route) {
  return [
    make("h2", {}, topic.name),
    make("div", { className: "cards" }, card("records in", number.format(topic.received_records)),
      card("bytes in", bytes(topic.received_bytes)), card("records out", number.format(topic.sent_records)),
      card("bytes out", bytes(topic.sent_bytes)), card("partitions", number.format(topic.partitions.total))),
    table([["Partition", true, (row) => row.partition], ["Start", true, (row) => count(row.start)],
      ["End", true, (row) => count(row.end)], ["Behind open transactions", true, (row) => count(row.stable_lag)],
      ["Open transactions", true, (row) => count(row.open_transactions)],
      ["Producers", true, (row) => count(row.producers)]], topic.partitions.rows),
    pages(topic.partitions, "page", route),
  ];
}

function showTransactions(list, route) {
  return [
    make("h2", {}, "Transactions"),
    table([["Transactional id", false, (row) => row.id], ["State", false, (row) => state(row.state)],
      ["Producer", true, (row) => `${row.producer_id} / ${row.producer_epoch}`],
      ["Open for", true, (row) => (row.age_ms === null ? "" : duration(row.age_ms / 1000))],
      ["Timeout", true, (row) => duration(row.timeout_ms / 1000)],
      ["Partitions", true, (row) => count(row.partitions)], ["Topics", false, (row) => row.topics.join(", ")]], list.rows),
    pages(list, "page", route),
  ];
}

const VIEWS = {
  "/": { api: "api/node", show: showNode, tab: "node" },
  "/groups": { api: "api/groups", show: showGroups, tab: "groups", choices: { type: TYPES, state: GROUP_STATES } },
  "/group": { api: "api/group", show: showGroup, tab: "groups" },
  "/topics": { api: "api/topics", show: showTopics, tab: "topics", choices: {} },
  "/topic": { api: "api/topic", show: showTopic, tab: "topics" },
  "/transactions": { api: "api/transactions", show: showTransactions, tab: "transactions", choices: { state: TRANSACTION_STATES } },
};

// ---- refreshes

/** Shows a view whose form stays the same element between refreshes, so that typing is not interrupted. */
function show(view, route, contents) {
  let result = main.querySelector("#result");
  if (main.dataset.place !== location.hash || !result) {
    result = make("div", { id: "result" });
    main.replaceChildren(...(view.choices ? [search(route, view.choices)] : []), result);
    main.dataset.place = location.hash;
  }
  result.replaceChildren(...contents);
}

function report(text, failed) {
  status.textContent = text;
  status.className = failed ? "failed" : "";
}

async function refresh() {
  clearTimeout(timer);
  const mine = ++turn;
  const route = current();
  const view = VIEWS[route.path] ?? VIEWS["/"];
  for (const each of document.querySelectorAll("nav a")) each.className = each.dataset.view === view.tab ? "current" : "";
  try {
    const response = await fetch(`${view.api}?${new URLSearchParams(route.query)}`, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (mine !== turn) return;
    if (response.status === 404) {
      show(view, route, [make("p", { className: "bad" }, "It does not exist, or not any more.")]);
    } else if (!response.ok) {
      throw new Error(`the node responds with ${response.status}`);
    } else {
      const found = await response.json();
      if (mine !== turn) return;
      show(view, route, view.show(found, route));
    }
    report(`updated ${new Date().toLocaleTimeString()}`, false);
  } catch (error) {
    if (mine !== turn) return;
    report(error instanceof TypeError || error.name === "TimeoutError" ? "the node does not respond" : error.message, true);
  }
  timer = setTimeout(() => (document.hidden ? undefined : refresh()), REFRESH_MS);
}

addEventListener("hashchange", () => {
  window.scrollTo(0, 0);
  refresh();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) refresh();
});
refresh();
