// Downloads: the whole content, the curves as CSV, and the files that came with the document.
{
  const { element, parts } = gradslide.elements;
  const { button } = gradslide.controls;

  const save = (name, type, text) => {
    const address = URL.createObjectURL(new Blob([text], { type }));
    element('a', { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60000);
  };

  const field = (value) => {
    const text = value === null || value === undefined ? '' : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };

  // One line per point: group, curve, then every column that any curve has.
  const csv = (groups) => {
    const all = groups.flatMap((group) => group.curves.map((curve) => [group.name, curve.name, curve.columns]));
    const keys = [...new Set(all.flatMap(([, , columns]) => Object.keys(columns)))];
    const lines = [['group', 'curve', ...keys]];
    for (const [group, curve, columns] of all) {
      const length = Math.max(0, ...Object.values(columns).map((column) => column.length));
      for (let index = 0; index < length; index += 1) {
        lines.push([group, curve, ...keys.map((key) => (columns[key] || [])[index])]);
      }
    }
    return lines.map((line) => `${line.map(field).join(',')}\r\n`).join('');
  };

  const offers = (given, content) => {
    const made = [
      { name: `${given.name || 'report'}-content.json`, type: 'application/json', text: () => JSON.stringify(content) },
    ];
    if (given.curves.length > 0) {
      made.push({ name: `${given.name || 'report'}-curves.csv`, type: 'text/csv', text: () => csv(given.curves) });
    }
    return made.concat(
      given.files.map((file) => ({ ...file, text: () => file.text, size: new Blob([file.text]).size })),
    );
  };

  const offer = () => {
    let file = null;
    const made = button('', () => save(file.name, file.type, file.text()));
    const update = (given) => {
      file = given;
      const size = given.size === undefined ? '' : ` (${gradslide.format.bytes(given.size)})`;
      gradslide.elements.setText(made, `↓ ${given.name}${size}`);
    };
    return { element: element('li', {}, made), update };
  };

  const downloads = () => {
    const list = parts(element('ul', { class: 'downloads' }), offer);
    return { element: list.element, update: ([given, content]) => list.update(offers(given, content)) };
  };

  gradslide.downloads = downloads;
}
