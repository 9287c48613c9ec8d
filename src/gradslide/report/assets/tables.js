// Tables, facts (definition lists), and what holds and what does not.
{
  const { element, notes, setText } = gradslide.elements;
  const { value } = gradslide.format;

  const longest = 48; // longer texts are broken into lines

  const numeric = (cells) =>
    cells.some((cell) => typeof cell === 'number') && cells.every((cell) => typeof cell === 'number' || cell === null);

  const filled = (caption, columns, rows) => {
    const right = columns.map((_, index) => numeric(rows.map((row) => row[index])));
    const kind = (index, text = '') => (right[index] ? 'number' : text.length > longest ? 'long' : null);
    const heads = columns.map((column, index) => element('th', { scope: 'col', class: kind(index, column) }, column));
    const cell = (content, index) => {
      const head = index === 0 && !right[0];
      const text = value(content);
      return element(head ? 'th' : 'td', { scope: head && 'row', class: kind(index, text) }, text);
    };
    const lines = rows.map((row) => element('tr', {}, ...row.map(cell)));
    return [
      element('caption', {}, caption),
      element('thead', {}, element('tr', {}, ...heads)),
      element('tbody', {}, ...lines),
    ];
  };

  // Shows a Table {title, columns, rows, notes}; wide ones scroll by themselves, also by keyboard.
  const table = () => {
    const body = element('table');
    const frame = element('div', { class: 'scroll', role: 'region', tabindex: '0' }, body);
    const below = notes();
    let shown = '';
    const update = (given) => {
      const wanted = JSON.stringify(given);
      if (wanted === shown) return;
      frame.setAttribute('aria-label', `Table: ${given.title}`);
      body.replaceChildren(...filled(given.title, given.columns, given.rows));
      below.update(given.notes || []);
      shown = wanted;
    };
    return { element: element('div', { class: 'table' }, frame, below.element), update };
  };

  const facts = () => {
    const list = element('dl');
    let shown = '';
    const update = (given) => {
      const wanted = JSON.stringify(given);
      if (wanted === shown) return;
      list.replaceChildren(
        ...Object.entries(given).map(([name, fact]) =>
          element('div', {}, element('dt', {}, name), element('dd', {}, value(fact))),
        ),
      );
      list.hidden = Object.keys(given).length === 0;
      shown = wanted;
    };
    return { element: list, update };
  };

  const findings = new Map([
    [true, ['✓', 'holds', 'good']],
    [false, ['✗', 'DOES NOT HOLD', 'bad']],
  ]);

  // A symbol, a word and a colour, so that no one of them is needed.
  const finding = (open) => {
    const mark = element('strong');
    const update = (holds, otherwise = open) => {
      const [symbol, word, style] = findings.get(holds) || [gradslide.format.missing, otherwise, 'open'];
      mark.className = `finding ${style}`;
      setText(mark, `${symbol} ${word}`);
    };
    return { element: mark, update };
  };

  const statement = () => {
    const mark = finding('not comparable');
    const text = element('span');
    const update = (given) => {
      mark.update(given.holds, given.word);
      setText(text, given.text);
    };
    return { element: element('li', {}, mark.element, ' ', text), update };
  };

  // Named facts in a box: settings, versions, and certificates, which also hold or not.
  const card = () => {
    const name = element('h3');
    const mark = finding('nothing proved');
    const text = element('p');
    const list = facts();
    const warnings = notes();
    const update = (given) => {
      setText(name, given.name);
      mark.element.hidden = !('holds' in given);
      if ('holds' in given) mark.update(given.holds);
      setText(text, given.text || '');
      list.update(given.facts);
      warnings.update((given.warnings || []).map((warning) => `⚠ ${warning}`));
    };
    return {
      element: element('article', { class: 'card' }, name, mark.element, text, list.element, warnings.element),
      update,
    };
  };

  gradslide.tables = { card, facts, statement, table };
}
