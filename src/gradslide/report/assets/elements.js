// Elements and parts. A part is {element, update(data)}: it is made once and updated in place, so that choices, scroll
// position and focus outlive new data. Text only ever becomes text: names come from users and may look like HTML.
{
  const element = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== null && value !== false) made.setAttribute(name, value === true ? '' : value);
    }
    made.append(...children);
    return made;
  };

  // Untouched where it stays the same: a selection survives, and nothing is announced twice.
  const setText = (where, text) => {
    if (where.textContent !== text) where.textContent = text;
    where.hidden = text === '';
  };

  let ids = 0;
  const newId = () => `g${(ids += 1)}`;

  // One part per item of a list: parts are kept as long as their item is there.
  const parts = (container, make) => {
    const made = [];
    const update = (items) => {
      while (made.length > items.length) made.pop().element.remove();
      items.forEach((item, index) => {
        if (index === made.length) {
          made.push(make(item, index));
          container.append(made[index].element);
        }
        made[index].update(item, index);
      });
    };
    return { element: container, update };
  };

  // Paragraphs of small print.
  const notes = () => {
    const line = () => {
      const text = element('p');
      return { element: text, update: (note) => setText(text, note) };
    };
    return parts(element('div', { class: 'notes' }), line);
  };

  // Folded away; its content is made when it is opened, and kept up to date only while it is open.
  const folded = (title, part) => {
    const details = element('details', {}, element('summary', {}, title), part.element);
    let pending = null;
    const show = () => {
      if (!details.open || pending === null) return;
      part.update(pending());
      pending = null;
    };
    details.addEventListener('toggle', show);
    const update = (data) => {
      pending = data;
      show();
    };
    return { element: details, update };
  };

  gradslide.elements = { element, folded, newId, notes, parts, setText };
}
