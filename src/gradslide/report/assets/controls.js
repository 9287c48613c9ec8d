// Labelled controls that keep what was chosen when their options change.
{
  const { element, setText } = gradslide.elements;

  // Options are [value, label] pairs; with fewer than two (or `least`) there is nothing to choose, and it hides.
  const choice = (label, changed, least = 2) => {
    const select = element('select');
    const whole = element('label', { class: 'control' }, element('span', {}, label), select);
    let shown = '';
    select.addEventListener('change', () => changed());
    const offer = (options) => {
      const wanted = JSON.stringify(options);
      if (wanted === shown) return;
      const kept = select.value;
      select.replaceChildren(...options.map(([value, text]) => element('option', { value }, text)));
      if (options.some(([value]) => String(value) === kept)) select.value = kept;
      whole.hidden = options.length < least;
      shown = wanted;
    };
    return {
      element: whole,
      offer,
      get value() {
        return select.value;
      },
      set value(wanted) {
        select.value = wanted;
      },
    };
  };

  const tick = (label, changed, checked = false) => {
    const box = element('input', { type: 'checkbox', checked });
    const text = element('span', {}, label);
    const whole = element('label', { class: 'tick' }, box, text);
    box.addEventListener('change', () => changed());
    return { element: whole, box, name: (wanted) => setText(text, wanted) };
  };

  const button = (label, pressed) => {
    const made = element('button', { type: 'button' }, label);
    made.addEventListener('click', () => pressed());
    return made;
  };

  const row = (label, ...children) =>
    element('div', { class: 'controls', role: 'group', 'aria-label': label }, ...children);

  gradslide.controls = { button, choice, row, tick };
}
