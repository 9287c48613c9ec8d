// One document: its sections in their order; those without content are left out.
{
  const { element, newId, parts, setText } = gradslide.elements;
  const { card, statement, table } = gradslide.tables;

  const picture = () => {
    const image = element('img');
    const caption = element('figcaption');
    const update = (given) => {
      if (image.getAttribute('src') !== given.source) image.setAttribute('src', given.source);
      image.setAttribute('alt', given.text);
      setText(caption, given.title);
    };
    return { element: element('figure', {}, image, caption), update };
  };

  const list = (tag, style, make) => parts(element(tag, { class: style }), make);

  const drawable = (given) => (given.axes.x.length && given.axes.y.length && given.curves.length ? [given] : []);

  const counted = (given) => given.agents.filter(({ columns }) => Object.keys(columns).some((key) => key !== 'agent'));

  // Runs with the same settings share one box.
  const settings = (given, content) => {
    const names = new Map();
    for (const { name, facts } of given.settings) {
      const key = JSON.stringify(facts);
      names.set(key, [...(names.get(key) || []), name]);
    }
    const boxes = [...names].map(([facts, same]) => ({ name: same.join(', '), facts: JSON.parse(facts) }));
    return [...boxes, { name: 'Versions', facts: content.versions }];
  };

  // Title, the part that shows it, and what of a document (and of the whole content) it shows; empty: left out.
  const kinds = [
    ['Verdict', () => list('ul', 'statements', statement), (given) => given.verdict],
    ['Model', () => list('div', 'tables', table), (given) => given.models],
    ['Summary', () => list('div', 'tables', table), (given) => (given.summary ? [given.summary] : [])],
    ['What holds', () => list('ul', 'statements', statement), (given) => given.statements],
    ['Convergence', () => gradslide.curves(), drawable],
    ['Network', () => gradslide.network(), (given) => given.networks],
    ['Costs per agent', () => gradslide.agents(), counted],
    ['Certificate', () => list('div', 'cards', card), (given) => given.certificates],
    ['Tables', () => list('div', 'tables', table), (given) => given.tables],
    ['Pictures', () => list('div', 'pictures', picture), (given) => given.images],
    ['Settings and versions', () => list('div', 'cards', card), settings],
    ['Downloads', () => gradslide.downloads(), (given, content) => [given, content]],
  ];

  const section = ([title, make, choose]) => {
    const id = newId();
    const part = make();
    const whole = element(
      'section',
      { 'aria-labelledby': id },
      element('h2', { id, tabindex: '-1' }, title),
      part.element,
    );
    const link = element('li', {}, element('a', { href: `#${id}` }, title));
    const update = (given, content) => {
      const chosen = choose(given, content);
      whole.hidden = chosen.length === 0;
      link.hidden = whole.hidden;
      if (!whole.hidden) part.update(chosen);
    };
    return { element: whole, link, update };
  };

  const documentPart = () => {
    const title = element('h1');
    const subtitle = element('p', { class: 'subtitle' });
    const origin = element('p', { class: 'origin' });
    const sections = kinds.map(section);
    const links = element(
      'nav',
      { class: 'contents', 'aria-label': 'Sections' },
      element('ul', {}, ...sections.map(({ link }) => link)),
    );
    const whole = element(
      'div',
      { class: 'document' },
      title,
      subtitle,
      origin,
      links,
      ...sections.map((part) => part.element),
    );
    const update = (given, content) => {
      setText(title, given.title || given.name);
      setText(subtitle, given.subtitle || '');
      setText(origin, `${given.kind} · ${given.name} · ${gradslide.format.moment(content.made)}`);
      sections.forEach((part) => part.update(given, content));
    };
    return { element: whole, update };
  };

  gradslide.document = documentPart;
}
