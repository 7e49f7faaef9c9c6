"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const at = new Map(data.rows.map((row, place) => [row, place]));
  const percent = (p) => `${Math.round(100 * p)} %`;
  const element = (tag, text = "", name = "") => {
    const made = document.createElement(tag);
    made.textContent = text;
    if (name) made.className = name;
    return made;
  };

  for (const image of document.querySelectorAll("img[data-picture]")) image.src = data.pictures[image.dataset.picture];

  const describe = (place) => {
    const label = data.labels[place], guess = data.classes[data.guesses[place]];
    if (data.given[place]) return `${guess}, your label`;
    if (label < 0) return `left unlabelled; perhaps ${guess} (${percent(data.confidence[place])})`;
    return `${guess} (${percent(data.confidence[place])}), or ${data.classes[data.seconds[place]]}`;
  };

  /* ---- corrections: kept in this browser, saved as a table of labels ---- */
  const store = `a2lp report ${data.store}`;
  let fixed = new Map(); // label by key
  try { fixed = new Map(JSON.parse(localStorage.getItem(store) || "[]")); } catch { /* a browser that keeps nothing */ }
  const keyOf = (place) => data.keys[place];
  const showFixed = () => {
    for (const card of document.querySelectorAll(".card[data-row]")) {
      const label = fixed.get(keyOf(at.get(Number(card.dataset.row))));
      card.classList.toggle("fixed", label !== undefined);
      card.querySelector(".text").dataset.fixed = label === undefined ? "" : `→ ${label}`;
    }
    $("bar").hidden = fixed.size === 0;
    $("counted").textContent = `${fixed.size} ${fixed.size === 1 ? "label" : "labels"} corrected or confirmed`;
    $("own").hidden = !data.keys.some((key, place) => data.given[place] && fixed.has(key));
    try { localStorage.setItem(store, JSON.stringify([...fixed])); } catch { /* as above */ }
  };
  const cell = (text) => {
    const safe = /^[=+\-@\t\r]/.test(text) && !(text.trim() !== "" && Number.isFinite(Number(text))) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const table = () => [[data.column, "label", "how"], ...[...fixed].map(([key, label]) => [key, label, "report"])]
    .map((line) => line.map(cell).join(",")).join("\n") + "\n";
  $("save").addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([table()], { type: "text/csv" }));
    link.download = "corrections.csv";
    link.click();
    URL.revokeObjectURL(link.href);
  });
  $("clear").addEventListener("click", () => {
    if (!window.confirm(`Discard ${$("counted").textContent}?`)) return;
    fixed.clear();
    showFixed();
  });

  /* ---- one point ---- */
  let open = -1;
  const set = (label) => {
    const yours = data.given[open] && label === data.classes[data.labels[open]];
    if (label === undefined || yours) fixed.delete(keyOf(open)); else fixed.set(keyOf(open), label);
    showFixed();
    $("point").close();
  };
  const show = (place) => {
    open = place;
    const picture = data.pictures[data.rows[place]];
    $("point-picture").hidden = !picture;
    if (picture) $("point-picture").src = picture;
    $("point-key").textContent = keyOf(place);
    $("point-words").textContent = describe(place);
    const first = data.classes[data.guesses[place]], second = data.classes[data.seconds[place]];
    const choices = (data.given[place] ? [first] : [first, second]).map((name, index) => {
      const button = element("button", index === 0 ? `Yes, ${name}` : `No, ${name}`);
      button.type = "button";
      button.addEventListener("click", () => set(name));
      return button;
    });
    $("point-choices").replaceChildren(...choices);
    $("point-class").value = "";
    $("point-undo").hidden = !fixed.has(keyOf(place));
    $("point").showModal();
  };
  $("point").querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const label = $("point-class").value.trim();
    if (label) set(label);
  });
  $("point-undo").addEventListener("click", () => set(undefined));
  $("point-close").addEventListener("click", () => $("point").close());
  $("point").addEventListener("click", (event) => { if (event.target === $("point")) $("point").close(); });
  document.addEventListener("click", (event) => {
    const card = event.target.closest(".card[data-row]");
    if (card) show(at.get(Number(card.dataset.row)));
  });

  /* ---- novelty ---- */
  if ($("reject")) {
    const cards = [...document.querySelectorAll("#novel .card")];
    const update = () => {
      const share = Number($("reject").value) / 100, count = Math.round(share * data.n_new);
      for (const card of cards) card.classList.toggle("out", data.rank[at.get(Number(card.dataset.row))] < count);
      $("rejected").textContent = share === 0 ? "nothing is left out" : `--reject ${share.toFixed(2)} leaves out ${count} of ${data.n_new}`;
    };
    $("reject").addEventListener("input", update);
    update();
  }

  /* ---- the map ---- */
  const canvas = $("map"), tip = $("tip"), said = $("said"), only = $("only");
  const pen = canvas.getContext("2d"), dots = data.map.length, EDGE = 14;
  const mark = new Map(data.names.map(([code, , , number]) => [code, number]));
  const px = new Float64Array(dots), py = new Float64Array(dots);
  let width = 0, height = 0, radius = 4, current = -1, chosen = -1;
  // the map fills the canvas, so each axis has its own scale
  const bounds = (values) => [Math.min(...values), Math.max(...values)];
  const [lowX, highX] = dots ? bounds(data.x) : [0, 1], [lowY, highY] = dots ? bounds(data.y) : [0, 1];
  const across = (x) => EDGE + (x - lowX) / Math.max(highX - lowX, 1e-9) * (width - 2 * EDGE);
  const down = (y) => EDGE + (y - lowY) / Math.max(highY - lowY, 1e-9) * (height - 2 * EDGE);
  const resize = () => {
    const ratio = window.devicePixelRatio || 1;
    [width, height] = [canvas.clientWidth, canvas.clientHeight];
    [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    for (let i = 0; i < dots; i += 1) [px[i], py[i]] = [across(data.x[i]), down(data.y[i])];
    radius = Math.max(1.6, Math.min(4.5, Math.sqrt(width * height / Math.max(dots, 1)) / 4));
    draw();
  };
  const shape = (x, y, r, kind) => {
    pen.beginPath();
    if (kind === 1) { pen.moveTo(x, y - 1.25 * r); pen.lineTo(x + 1.15 * r, y + .85 * r); pen.lineTo(x - 1.15 * r, y + .85 * r); pen.closePath(); }
    else if (kind === 2) { pen.moveTo(x, y - 1.35 * r); pen.lineTo(x + 1.35 * r, y); pen.lineTo(x, y + 1.35 * r); pen.lineTo(x - 1.35 * r, y); pen.closePath(); }
    else pen.arc(x, y, r, 0, 7);
  };
  const visible = (i) => chosen < 0 || data.labels[data.map[i]] === chosen;
  const draw = () => {
    const style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const palette = Array.from({ length: 8 }, (_, i) => colour(`c${i}`)), rest = colour("rest"), ink = colour("ink");
    pen.clearRect(0, 0, width, height);
    pen.fillStyle = colour("paper");
    pen.fillRect(0, 0, width, height);
    const own = dots > 0 && data.given.reduce((sum, one) => sum + one, 0) > 120 ? 1.2 : 1.6; // many large ones would cover the rest
    const paint = (i) => {
      const place = data.map[i], label = data.labels[place], number = label < 0 ? null : mark.get(label);
      const shown = visible(i), yours = data.given[place] === 1, big = i === current;
      pen.globalAlpha = !shown ? .08 : big || yours ? 1 : .4 + .6 * data.confidence[place];
      pen.fillStyle = number !== null && number !== undefined ? palette[number % 8] : chosen >= 0 && shown ? palette[0] : rest;
      shape(px[i], py[i], (big ? 1.8 : yours ? own : 1) * radius, number ? Math.floor(number / 8) : 0);
      pen.fill();
      if ((yours || big) && shown) { pen.lineWidth = big ? 3 : own === 1.6 ? 1.5 : 1; pen.strokeStyle = ink; pen.stroke(); }
    };
    for (let i = 0; i < dots; i += 1) if (!data.given[data.map[i]]) paint(i);
    for (let i = 0; i < dots; i += 1) if (data.given[data.map[i]]) paint(i);
    if (current >= 0) paint(current);
    pen.globalAlpha = 1;
    writeNames(ink, colour("paper"));
  };
  /* each name near the middle of its class, where it covers no other name; a name without room is left out */
  const writeNames = (ink, halo) => {
    const size = width < 500 ? 11 : 13, taken = [];
    pen.font = `600 ${size}px system-ui, sans-serif`;
    pen.textBaseline = "middle";
    pen.lineJoin = "round";
    let written = 0;
    for (const [code, x, y] of data.names) {
      if (chosen >= 0 && code !== chosen) continue;
      const text = data.classes[code].length > 28 ? `${data.classes[code].slice(0, 27)}…` : data.classes[code];
      const wide = pen.measureText(text).width + 6, tall = size + 4, [cx, cy] = [across(x), down(y)];
      const spots = [[0, -14], [0, 14], [0, -26], [0, 26], [wide / 2 + 8, 0], [-wide / 2 - 8, 0], [wide / 2, -20], [-wide / 2, -20], [wide / 2, 20], [-wide / 2, 20]];
      for (const [dx, dy] of spots) {
        const left = Math.min(Math.max(cx + dx - wide / 2, 2), Math.max(2, width - wide - 2)), top = Math.min(Math.max(cy + dy - tall / 2, 2), height - tall - 2);
        if (taken.some(([l, t, w, h]) => left < l + w && l < left + wide && top < t + h && t < top + tall)) continue;
        taken.push([left, top, wide, tall]);
        [pen.lineWidth, pen.strokeStyle, pen.fillStyle] = [4, halo, ink];
        pen.strokeText(text, left + 3, top + tall / 2);
        pen.fillText(text, left + 3, top + tall / 2);
        written += 1;
        break;
      }
    }
    canvas.dataset.names = `${written} of ${chosen >= 0 ? 1 : data.names.length}`;
  };
  const point = (i) => {
    if (i === current) return;
    current = i;
    draw();
    tip.hidden = i < 0;
    if (i < 0) return;
    const place = data.map[i], picture = data.pictures[data.rows[place]], parts = [];
    if (picture) { const image = element("img"); image.src = picture; image.alt = ""; parts.push(image); }
    tip.replaceChildren(...parts, element("b", keyOf(place)), element("span", describe(place)));
    said.textContent = `${keyOf(place)}: ${describe(place)}`;
    const right = px[i] + 14 + tip.offsetWidth > width, below = py[i] + 14 + tip.offsetHeight > height;
    tip.style.left = `${Math.max(0, right ? px[i] - 14 - tip.offsetWidth : px[i] + 14)}px`;
    tip.style.top = `${below ? py[i] - 14 - tip.offsetHeight : py[i] + 14}px`;
  };
  const nearest = (event) => {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    let best = -1, least = 14 * 14;
    for (let i = 0; i < dots; i += 1) {
      const far = (px[i] - x) ** 2 + (py[i] - y) ** 2;
      if (far < least && visible(i)) [best, least] = [i, far];
    }
    return best;
  };
  canvas.addEventListener("pointermove", (event) => point(nearest(event)));
  canvas.addEventListener("pointerleave", () => point(-1));
  canvas.addEventListener("blur", () => point(-1));
  canvas.addEventListener("click", (event) => { const i = nearest(event); if (i >= 0) show(data.map[i]); });
  canvas.addEventListener("keydown", (event) => {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (event.key === "Escape") return point(-1);
    if (event.key === "Enter" && current >= 0) { event.preventDefault(); return show(data.map[current]); }
    if (!way && event.key !== "Home") return undefined;
    event.preventDefault();
    let best = -1, least = Infinity;
    for (let i = 0; i < dots; i += 1) {
      if (!visible(i) || i === current) continue;
      let cost = data.confidence[data.map[i]];
      if (way && current >= 0) {
        const [dx, dy] = [px[i] - px[current], py[i] - py[current]];
        const along = dx * way[0] + dy * way[1];
        cost = along > 0 ? along + 3 * (Math.abs(dx * way[1]) + Math.abs(dy * way[0])) : Infinity;
      }
      if (cost < least) [best, least] = [i, cost];
    }
    return best >= 0 ? point(best) : undefined;
  });
  const focus = (code) => {
    chosen = code;
    only.value = code < 0 ? "" : String(code);
    for (const button of $("legend").querySelectorAll("button")) button.setAttribute("aria-pressed", String(Number(button.dataset.code) === code));
    point(-1);
    draw();
  };
  only.addEventListener("change", () => focus(only.value === "" ? -1 : Number(only.value)));
  for (const [code, , , number] of data.names) {
    if (number === null) continue;
    const item = element("li"), button = element("button"), svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const drawn = document.createElementNS("http://www.w3.org/2000/svg", "path");
    svg.setAttribute("viewBox", "-7 -7 14 14");
    svg.setAttribute("aria-hidden", "true");
    drawn.setAttribute("d", ["M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0", "M0-6 6 5-6 5z", "M0-6.5 6.5 0 0 6.5-6.5 0z"][Math.floor(number / 8)]);
    drawn.setAttribute("class", `k${number % 8}`);
    svg.append(drawn);
    button.type = "button";
    button.dataset.code = code;
    button.setAttribute("aria-pressed", "false");
    button.append(svg, element("span", data.classes[code]));
    button.addEventListener("click", () => focus(chosen === code ? -1 : code));
    item.append(button);
    $("legend").append(item);
  }
  window.addEventListener("resize", resize);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  // what has become a label since then needs no correction any more
  data.keys.forEach((key, place) => { if (data.given[place] && fixed.get(key) === data.classes[data.labels[place]]) fixed.delete(key); });
  resize();
  showFixed();
  document.documentElement.dataset.ready = "true";
})();
