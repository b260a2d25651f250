// Follows a page by server-sent events. What comes are lines of HTML that the server made: all of
// them, or those that changed. Only what differs is changed in the page, so that a selection, the
// focus and what a screen reader reads stay where they are.
(() => {
  'use strict';
  const main = document.querySelector('main[data-live]');
  const foot = document.getElementById('following');
  if (!main || !foot || !window.EventSource) return;

  let source = null, lines = [], paused = false, again = 0;

  const said = document.createElement('span');
  const button = document.createElement('button');
  button.type = 'button';
  foot.replaceChildren(said, ' ', button);

  function say(text) {
    if (said.textContent !== text) said.textContent = text;
    button.textContent = paused ? 'Go on' : 'Pause';
  }

  function open() {
    clearTimeout(again);
    if (source || paused || document.hidden) return;
    source = new EventSource(main.dataset.live);
    source.onopen = () => say('Followed live.');
    source.onmessage = (e) => take(JSON.parse(e.data));
    source.onerror = () => {
      say('Not followed: the server does not answer, or it has too many viewers. Tried again soon.');
      if (source && source.readyState === EventSource.CLOSED) {
        close();
        again = setTimeout(open, 15000);
      }
    };
  }

  function close() {
    clearTimeout(again);
    if (source) source.close();
    source = null;
  }

  function take(message) {
    if (message.all) lines = message.all;
    for (const [i, line] of Object.entries(message.set || {})) lines[i] = line;
    const shape = document.createElement('template');
    shape.innerHTML = lines.join('\n');
    children(main, shape.content);
    main.dataset.followed = String(Number(main.dataset.followed || 0) + 1);
  }

  function children(old, next) {
    const wanted = [...next.childNodes];
    for (let i = 0; i < wanted.length; i++) {
      const have = old.childNodes[i];
      if (!have) old.appendChild(document.importNode(wanted[i], true));
      else if (have.nodeType !== wanted[i].nodeType || have.nodeName !== wanted[i].nodeName) {
        old.replaceChild(document.importNode(wanted[i], true), have);
      } else same(have, wanted[i]);
    }
    while (old.childNodes.length > wanted.length) old.removeChild(old.lastChild);
  }

  function same(old, next) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== next.data) old.data = next.data;
      return;
    }
    if (old.nodeName === 'FORM') return; // somebody may be filling it in
    for (const a of next.attributes) if (old.getAttribute(a.name) !== a.value) old.setAttribute(a.name, a.value);
    for (const a of [...old.attributes]) if (!next.hasAttribute(a.name)) old.removeAttribute(a.name);
    children(old, next);
  }

  button.addEventListener('click', () => {
    paused = !paused;
    if (paused) { close(); say('Not followed.'); } else { say('Not followed yet.'); open(); }
  });
  document.addEventListener('visibilitychange', () => { if (document.hidden) close(); else open(); });
  addEventListener('pagehide', close);
  addEventListener('pageshow', open);
  say('Not followed yet.');
  open();
})();
