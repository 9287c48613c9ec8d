// Several documents: one tab each, by mouse or arrow keys. Only the one that is shown is kept up to date.
{
  const { element, newId, setText } = gradslide.elements;

  const tabs = (nav, main) => {
    const list = element('div', { role: 'tablist', 'aria-label': 'Documents' });
    const made = [];
    let active = 0;
    let content = null;
    nav.append(list);

    const show = (index) => {
      active = index;
      made.forEach(({ tab, panel }, other) => {
        tab.setAttribute('aria-selected', String(other === active));
        tab.tabIndex = other === active ? 0 : -1;
        panel.hidden = other !== active;
      });
      if (made.length > 0) made[active].part.update(content.documents[active], content);
    };

    const add = (index) => {
      const [tabId, panelId] = [newId(), newId()];
      const part = gradslide.document();
      const tab = element('button', { type: 'button', role: 'tab', id: tabId, 'aria-controls': panelId });
      const panel = element('div', { id: panelId }, part.element);
      tab.addEventListener('click', () => show(index));
      list.append(tab);
      main.append(panel);
      made.push({ panel, part, tab });
    };

    list.addEventListener('keydown', (event) => {
      const count = made.length;
      const next = { ArrowRight: active + 1, ArrowLeft: active - 1 + count, Home: 0, End: count - 1 }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      show(next % count);
      made[active].tab.focus();
    });

    const update = (given) => {
      content = given;
      while (made.length > given.documents.length) {
        const gone = made.pop();
        gone.tab.remove();
        gone.panel.remove();
      }
      while (made.length < given.documents.length) add(made.length);
      nav.hidden = made.length < 2;
      made.forEach(({ panel, tab }, index) => {
        setText(tab, given.documents[index].name);
        if (nav.hidden) panel.removeAttribute('role');
        else panel.setAttribute('role', 'tabpanel');
        if (!nav.hidden) panel.setAttribute('aria-labelledby', tab.id);
      });
      show(Math.min(active, Math.max(0, made.length - 1)));
    };

    return { update, refresh: () => content && show(active) };
  };

  gradslide.tabs = tabs;
}
