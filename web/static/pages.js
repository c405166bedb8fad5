// The index, and the pages that compute without one recipe.
"use strict";

const MOST = 4;

if (find("#recipes")) {
  const items = [...document.querySelectorAll("#recipes li")];
  const ticked = () => items.filter((item) => item.querySelector("input").checked);
  const filter = () => {
    const words = find("#search").value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const item of items) {
      const text = item.textContent.toLowerCase();
      const fits = words.every((word) => text.includes(word))
        && ["gate", "level", "framework"].every((key) => ["", item.dataset[key]].includes(find(`#${key}`).value))
        && ["off_policy", "moe", "critic"].every((key) => !find(`#${key}`).checked || key in item.dataset);
      item.hidden = !fits;
      shown += fits;
    }
    find("#found").textContent = `${shown} of ${items.length}`;
  };
  const tick = () => {
    const count = ticked().length;
    find("#compare").disabled = count < 2;
    find("#compare").textContent = count < 2 ? "Compare" : `Compare ${count}`;
    for (const item of items) {
      const box = item.querySelector("input");
      box.disabled = count >= MOST && !box.checked;
    }
  };
  find("#filters").addEventListener("input", filter);
  find("#filters").addEventListener("submit", (event) => event.preventDefault());
  find("#recipes").addEventListener("change", tick);
  find("#compare").addEventListener("click", () => {
    location.href = `compare.html#${ticked().map((item) => item.dataset.name).join(",")}`;
  });
  filter();
  tick();
}

// Text in which `code` is marked with backticks.
const prose = (text) => text.split("`").map((part, i) => (i % 2 ? make("code", {}, part) : part));

if (find("#chosen")) {
  const error = find("#error");
  const chosen = () => decodeURIComponent(location.hash.slice(1)).split(",").filter(Boolean).slice(0, MOST);
  const rows = (recipes) => {
    const of = (name, get) => [name, recipes.map(get)];
    const stages = [...new Set(recipes.flatMap((recipe) => recipe.stages.map((stage) => stage.name)))];
    const stage = (name) => of(name, (recipe) => recipe.stages.filter((stage) => stage.name === name)
      .flatMap((stage) => [stage.settings, ...stage.formulas]).filter(Boolean).join("\n"));
    return [
      of("what it is", (recipe) => recipe.what.join(" ")), of("source", (recipe) => recipe.source),
      of("evidence", (recipe) => recipe.evidence), ...stages.map(stage),
      of("columns", (recipe) => [...new Set(recipe.needs.filter((need) => need.required).map((need) => need.column))].join(", ")),
      of("duties", (recipe) => recipe.duties.map(([name]) => name).join(", ") || "none"),
    ];
  };
  const show = () => guarded(error, async (stale) => {
    if (LOCKSTEP.recipes.length === 0) await script("recipes.js");
    const names = chosen();
    const options = (current) => ["", ...LOCKSTEP.recipes.map((recipe) => recipe.name)].map((name) => (
      make("option", { value: name, selected: name === current }, name || "–")));
    const change = () => {
      location.hash = [...document.querySelectorAll("#chosen select")].map((select) => select.value).filter(Boolean).join(",");
    };
    const focused = [...find("#chosen").children].indexOf(document.activeElement);
    find("#chosen").replaceChildren(...Array.from({ length: MOST }, (_, i) => (
      make("select", { "aria-label": `Recipe ${i + 1}`, onchange: change }, ...options(names[i] ?? "")))));
    find("#chosen").children[focused]?.focus();
    find("#table").replaceChildren();
    find("#curves").replaceChildren();
    const recipes = names.map((name) => {
      const found = LOCKSTEP.recipes.find((recipe) => recipe.name === name);
      if (!found) throw new Error(`no recipe is called ${name}`);
      return found;
    });
    const head = make("tr", {}, make("td"), ...names.map((name) => (
      make("th", { scope: "col" }, make("a", { href: `recipe/${name}.html` }, name)))));
    const row = ([name, cells]) => make("tr", { class: new Set(cells).size > 1 ? "differs" : "" },
      make("th", { scope: "row" }, name),
      ...cells.map((cell) => make("td", {}, ...cell.split("\n").map((line) => make("div", {}, ...prose(line))))));
    find("#table").replaceChildren(...(recipes.length ? [head, ...rows(recipes).map(row)] : []));
    const drawn = [];
    for (const name of names) drawn.push({ name, curve: await ask({ ask: "curve", recipe: name }) });
    if (stale()) return;
    const figures = [];
    for (const [sign, key] of [["A = 1", "positive"], ["A = −1", "negative"]]) {
      for (const [title, of] of [["Loss of one token", "loss"], ["Gradient dL/dlogp", "coef"]]) {
        const figure = make("figure");
        if (drawn.length) {
          lines(figure, { title: `${title}, ${sign}`, across: "ratio", x: drawn[0].curve.ratio,
            lines: drawn.map(({ name, curve }) => ({ name, y: curve[key][of] })) });
        }
        figures.push(figure);
      }
    }
    find("#curves").replaceChildren(...figures);
  });
  addEventListener("hashchange", show);
  show();
}

if (find("#tree")) {
  const drawTree = () => guarded(find("#tree-error"), async (stale) => {
    const cut = [];
    for (const [i, line] of find("#responses").value.split("\n").entries()) {
      if (line.trim() === "") continue;
      const found = line.match(/^\s*(\S+)\s(.+)$/);
      if (!found || !Number.isFinite(Number(found[1]))) throw new Error(`line ${i + 1}: expected a reward, a space and the response`);
      cut.push(found);
    }
    if (cut.length === 0) throw new Error("no responses: expected lines of a reward, a space and the response");
    const tree = await ask({ ask: "tree", responses: cut.map((found) => found[2]), rewards: cut.map((found) => Number(found[1])) });
    if (stale()) return;
    const figure = find("#tree");
    figure.shown = tree;
    const node = (number) => {
      const { text, value, passing, children, ends } = tree.nodes[number];
      const said = [`V ${short(value)}`, ...(passing > 1 ? [`${passing} responses`] : []), ...(ends.length ? [`ends: ${ends.map((e) => e + 1).join(", ")}`] : [])];
      return make("li", {}, make("code", {}, text || "·"), ` ${said.join(", ")}`, ...(children.length ? [make("ul", {}, ...children.map(node))] : []));
    };
    const list = make("ul", { class: "tree" }, ...(tree.nodes.length ? [node(0)] : []));
    const line = (changes, i) => make("tr", {}, make("th", { scope: "row" }, `${i + 1}`), ...changes.map((x, t) => make("td", {}, make("code", {}, [...cut[i][2]][t]), ` ${short(x)}`)));
    figure.replaceChildren(make("figcaption", {}, "Values"), list, make("figcaption", {}, "Change of value at each token"), make("div", { class: "wide", tabindex: "0" }, make("table", {}, ...tree.change.map(line))));
  });
  find("#responses").addEventListener("input", drawTree);
  drawTree();

  const drawRouter = () => guarded(find("#router-error"), async (stale) => {
    const [noise, topK] = [find("#noise"), find("#top_k")].map((input) => {
      input.nextElementSibling.textContent = ` ${input.value}`;
      return Number(input.value);
    });
    const routed = await ask({ ask: "router", noise, top_k: topK });
    if (stale()) return;
    const tokens = routed.engine.chosen.length / topK;
    const table = (title, choice, note) => {
      const head = make("tr", {}, make("td"), ...Array.from({ length: routed.experts }, (_, e) => make("th", { scope: "col" }, String(e))));
      const rows = Array.from({ length: tokens }, (_, t) => {
        const cells = Array.from({ length: routed.experts }, (_, e) => {
          const at = Array.from({ length: topK }, (_, k) => t * topK + k);
          const mine = at.find((i) => choice.chosen[i] === e);
          if (mine === undefined) return make("td");
          const gate = choice.gates[mine], other = !at.some((i) => routed.engine.chosen[i] === e);
          const fill = `background: color-mix(in srgb, var(--c0) ${Math.round(gate * 35)}%, transparent)`;
          return make("td", { class: other ? "other" : "", style: fill }, gate.toFixed(2));
        });
        return make("tr", {}, make("th", { scope: "row" }, `t${t + 1}`), ...cells);
      });
      return make("figure", {}, make("figcaption", {}, title), make("table", { class: "routed" }, head, ...rows), make("p", {}, note));
    };
    const percent = (x) => `${Math.round(100 * x)} % of the tokens have other experts than in the engine`;
    find("#router").shown = routed;
    find("#router").replaceChildren(
      table("Engine", routed.engine, "As sampled."), table("Trainer, choosing for itself", routed.free, percent(routed.differing[0])),
      table("Trainer, replayed", routed.replayed, percent(routed.differing[1])));
  });
  find("#router-settings").addEventListener("input", drawRouter);
  drawRouter();
}

if (find("#drop")) {
  let bytes, name;
  const score = () => guarded(find("#error"), async (stale) => {
    if (bytes === undefined) return;
    find("#scored").replaceChildren();
    const scored = await ask({ ask: "file", recipe: find("#recipe").value }, bytes);
    if (stale()) return;
    const cells = (tag, ...texts) => make("tr", {}, ...texts.map((text) => make(tag, {}, text)));
    const need = ({ call, column, stage, required, there }) => cells("td", call, column, stage, required ? "required" : "optional", there ? "there" : "absent");
    const part = (title, values) => {
      const figure = make("figure");
      histogram(figure, title, values);
      return figure;
    };
    const metrics = [["loss", scored.loss], ...scored.metrics];
    find("#scored").shown = scored;
    find("#scored").replaceChildren(
      make("p", {}, `${name}: ${scored.groups} groups, ${scored.sequences} responses, ${scored.tokens} tokens.`
        + (scored.unused.length ? ` Not read by this recipe: ${scored.unused.join(", ")}.` : "")),
      make("div", { class: "plots" }, part("Advantages", scored.advantage), part("Coefficients dL/dlogp", scored.coef),
        ...(scored.ratio ? [part("Ratios", scored.ratio)] : []), part("Clipped: not, above, below, dual", clipped(metrics))),
      make("h2", {}, "Metrics"), make("table", {}, ...metrics.map(([metric, value]) => cells("td", metric, short(value)))),
      make("h2", {}, "Needs"), make("div", { class: "wide", tabindex: "0" }, make("table", {}, cells("th", "call", "column", "for", "must be there", "in the file"), ...scored.needs.map(need))));
  });
  // Tokens at each of the clips.
  const clipped = (metrics) => {
    const of = Object.fromEntries(metrics);
    const clips = ["clip_fraction_high", "clip_fraction_low", "clip_fraction_dual"].map((key) => Math.round(of[key] * of.tokens));
    return { range: [0, 3], counts: [of.tokens - clips.reduce((a, b) => a + b), ...clips] };
  };
  const read = (file) => file && guarded(find("#error"), async (stale) => {
    find("#scored").replaceChildren();
    bytes = undefined;
    const own = new Uint8Array(await file.arrayBuffer());
    if (stale()) return;
    [bytes, name] = [own, file.name];
    score();
  });
  const over = (on) => (event) => { event.preventDefault(); find(".file").classList.toggle("over", on); };
  addEventListener("dragover", over(true));
  addEventListener("dragleave", over(false));
  addEventListener("drop", (event) => { over(false)(event); read(event.dataTransfer.files[0]); });
  find("#file").addEventListener("change", (event) => read(event.target.files[0]));
  find("#recipe").addEventListener("change", score);
}

if (find("#digests")) {
  let launches;
  const compute = async () => {
    document.querySelectorAll("#digests tr:nth-child(n+2)").forEach((row) => row.remove());
    launches ??= new Uint8Array(await packed("launches"));
    for (const [title, request, file] of [["corpus", { ask: "digest" }, launches], ["recipes", { ask: "recipes" }]]) {
      const row = make("tr", { "data-digest": title }, make("th", { scope: "row" }, title), make("td", {}, "computing …"));
      find("#digests").append(row);
      // The page paints before the module takes its time.
      await new Promise((done) => setTimeout(done, 30));
      const { digest, published } = await ask(request, file);
      const same = digest === published;
      row.lastChild.remove();
      row.append(make("td", {}, digest), make("td", {}, published), make("td", { class: same ? "good" : "bad" }, same ? "the same" : "different"));
    }
  };
  find("#compute").addEventListener("click", ({ target }) => {
    target.disabled = true;
    guarded(find("#error"), compute).finally(() => { target.disabled = false; });
  });
}
