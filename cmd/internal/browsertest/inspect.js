// Returns the faults of the page: horizontal scrolling, text with a contrast below 4.5, inputs
// without a label, images without alternative text, and a missing language.
(() => {
  const faults = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    const wide = [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > root.clientWidth + 1 && getComputedStyle(e).position !== "absolute");
    faults.push(`scrolls: ${root.scrollWidth} > ${root.clientWidth}: ${wide.slice(0, 3).map((e) => e.outerHTML.slice(0, 80)).join(" | ")}`);
  }
  if (!root.lang) faults.push("no language");
  if (document.querySelectorAll("h1").length !== 1) faults.push("not one h1");
  for (const e of document.querySelectorAll("input, select")) {
    if (!e.labels.length) faults.push(`no label: ${e.outerHTML}`);
  }
  for (const e of document.querySelectorAll("img")) {
    if (!e.hasAttribute("alt")) faults.push(`no alternative text: ${e.outerHTML}`);
    if (!e.complete || !e.naturalWidth) faults.push(`not loaded: ${e.outerHTML}`);
  }
  const parse = (color) => color.match(/[\d.]+/g).map(Number);
  const light = (color) => {
    const [r, g, b] = parse(color).map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor;
      if (parse(color).length === 3 || parse(color)[3] === 1) return color;
    }
    return "rgb(255, 255, 255)";
  };
  for (const e of document.querySelectorAll("body, body *")) {
    const text = [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim());
    if ((!text && !e.placeholder) || !e.checkVisibility()) continue;
    const of = (pseudo) => {
      const [a, b] = [light(getComputedStyle(e, pseudo).color), light(behind(e))].sort((x, y) => y - x);
      const ratio = (a + 0.05) / (b + 0.05);
      if (ratio < 4.5) faults.push(`contrast ${ratio.toFixed(2)}: ${e.outerHTML.slice(0, 80)}`);
    };
    of();
    if (e.placeholder) of("::placeholder");
    const style = getComputedStyle(e);
    if (style.overflow === "hidden" && style.position !== "absolute" && e.scrollWidth > e.clientWidth + 1 && e.tagName !== "PROGRESS") faults.push(`cut off: ${e.outerHTML.slice(0, 80)}`);
  }
  return faults;
})();
