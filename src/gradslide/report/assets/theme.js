// Light or dark: as the system says until the button says otherwise; always light on paper.
{
  const system = window.matchMedia('(prefers-color-scheme: dark)');
  const listeners = [];
  let chosen = null;
  let printing = false;

  const name = () => (printing ? 'light' : chosen || (system.matches ? 'dark' : 'light'));

  // A colour of the style sheet, for plots.
  const colour = (variable) => getComputedStyle(document.documentElement).getPropertyValue(`--${variable}`).trim();

  const apply = () => {
    const other = name() === 'dark' ? 'light' : 'dark';
    document.documentElement.dataset.theme = name();
    const button = document.getElementById('theme');
    button.textContent = other === 'dark' ? '☾ dark' : '☀ light';
    button.setAttribute('aria-label', `Switch to ${other} colours`);
    listeners.forEach((listener) => listener());
  };

  const start = () => {
    document.getElementById('theme').addEventListener('click', () => {
      chosen = name() === 'dark' ? 'light' : 'dark';
      apply();
    });
    system.addEventListener('change', apply);
    for (const [event, paper] of [
      ['beforeprint', true],
      ['afterprint', false],
    ]) {
      window.addEventListener(event, () => {
        printing = paper;
        apply();
      });
    }
    apply();
  };

  gradslide.theme = { colour, listen: (listener) => listeners.push(listener), name, printing: () => printing, start };
}
