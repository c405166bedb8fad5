// The page of a recipe: its numbers, and what they do.
"use strict";

// Loss and dL/dlogp of a token over the ratio, as figures of recipes' curves: { name, curve }.
function curves(loss, coef, recipes) {
  const draw = (figure, title, of) => lines(figure, {
    title, across: "ratio", x: recipes[0].curve.ratio,
    lines: recipes.flatMap(({ name, curve }, i) => [["A = 1", "positive"], ["A = −1", "negative"]].map(([sign, key], j) => (
      { name: recipes.length > 1 ? `${name}, ${sign}` : sign, y: curve[key][of], style: recipes.length > 1 ? i : j }))),
  });
  draw(loss, "Loss of one token", "loss");
  draw(coef, "Gradient dL/dlogp of one token", "coef");
}

if (find("[data-recipe]")) {
  const recipe = find("[data-recipe]").dataset.recipe;
  const set = {}, rewards = [1, 0, 1, 0, 0, 1, 0, 1];
  const error = find("#error");

  const drawGroup = async (stale) => {
    const group = await ask({ ask: "group", recipe, set, rewards });
    if (stale()) return;
    const figure = find("#group"), focused = [...figure.querySelectorAll("button")].indexOf(document.activeElement);
    const most = Math.max(...group.advantage.map((x) => Math.abs(x ?? 0)));
    const member = (i) => {
      const [from, to] = group.per_token ? [group.cu_seqlens[i], group.cu_seqlens[i + 1]] : [i, i + 1];
      const own = group.advantage.slice(from, to);
      const said = group.per_token ? `${short(Math.min(...own))} to ${short(Math.max(...own))}` : short(own[0]);
      const next = () => { rewards[i] = { 0: 0.5, 0.5: 1 }[rewards[i]] ?? 0; guarded(find("#group-error"), drawGroup); };
      const button = make("button", { type: "button", onclick: next, "aria-label": `R ${rewards[i]}, reward of response ${i + 1}` }, `R ${rewards[i]}`);
      const out = group.keep[i] === 0;
      return make("div", { class: out ? "out" : "" }, button, bars(own, most, `advantage ${said}`), out ? "left out" : `A ${said}`);
    };
    figure.shown = group;
    const sets = [];
    for (let g = 0; g + 1 < group.cu_groups.length; g++) {
      const members = [];
      for (let i = group.cu_groups[g]; i < group.cu_groups[g + 1]; i++) members.push(member(i));
      sets.push(make("div", { class: "members", role: "group", "aria-label": `Prompt ${g + 1}` }, ...members));
    }
    const note = group.per_token ? "A bar is a token." : "A bar is a response.";
    figure.replaceChildren(make("figcaption", {}, "Advantages of two prompts: click a reward"), ...sets, make("p", {}, `${note} Left out: by the filter.`));
    if (focused >= 0) figure.querySelectorAll("button")[focused].focus();
  };

  const drawDrift = (drift) => {
    const over = (figure, title, all) => lines(figure, {
      title, across: "scale of the noise in log-probabilities, nats", x: drift.distance, lines: all,
      along: drift.refused === null ? "" : `Beyond, the recipe refuses: ${drift.refused}` });
    over(find("#drift"), "As the policy moves away", [
      { name: "effective sample size", y: drift.ess }, { name: "clipped", y: drift.clip_fraction }, { name: "mean gate", y: drift.gate_mean }]);
    if (drift.correction_ess.length === 0) return;
    over(find("#correction"), "Correction as the sampler moves away", [
      { name: "effective sample size", y: drift.correction_ess }, { name: "mean weight", y: drift.correction_mean },
      { name: "outside the band", y: drift.correction_outside }, { name: "rejected", y: drift.correction_rejected }]);
  };

  const draw = () => guarded(error, async (stale) => {
    const settings = await ask({ ask: "settings", recipe, set });
    const curve = await ask({ ask: "curve", recipe, set });
    if (stale()) return;
    for (const text of ["toml", "python", "rust"]) find(`#${text} code`).textContent = settings[text];
    curves(find("#loss"), find("#coef"), [{ name: recipe, curve }]);
    await drawGroup(stale);
    if (stale()) return;
    find("#group-error").textContent = "";
    const drift = await ask({ ask: "drift", recipe, set });
    if (!stale()) drawDrift(drift);
  });

  const slider = ({ path, value, range: [low, high], whole }) => {
    const step = whole ? 1 : "any", id = `n-${path}`;
    const range = make("input", { type: "range", min: low, max: high, step, value, id, "data-path": path });
    const number = make("input", { type: "number", step, value, "aria-label": `${path}, exactly` });
    range.value = value;
    const change = (from, to) => () => {
      if (from.value === "") return;
      to.value = from.value;
      set[path] = Number(from.value);
      draw();
    };
    range.addEventListener("input", change(range, number));
    number.addEventListener("input", change(number, range));
    return make("label", { for: id }, make("span", {}, path), range, number);
  };

  guarded(error, async () => {
    const { numbers } = await ask({ ask: "settings", recipe });
    find("#sliders").replaceChildren(...numbers.map(slider));
    await draw();
  });

  find("#compute").addEventListener("click", () => guarded(error, async () => {
    const { digest } = await ask({ ask: "recipes", names: [recipe] });
    const same = digest === find("#published").textContent;
    find("#computed").className = same ? "good" : "bad";
    find("#computed").textContent = same ? "the same bits" : `other bits: ${digest}`;
  }));
}
