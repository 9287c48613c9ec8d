// Numbers, yes and no, sizes and times as a reader likes them.
{
  const missing = '–';

  // Whole numbers in full; others with 4 digits, or 6 from 1,000 on; very large and tiny ones as 1.23e-7.
  const number = (value) => {
    if (typeof value !== 'number') return missing;
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-4 || size >= 1e9)) {
      return value
        .toExponential(3)
        .replace(/\.?0+e/, 'e')
        .replace('e+', 'e');
    }
    const digits = Number.isInteger(value) ? 15 : size >= 1000 ? 6 : 4;
    return value.toLocaleString('en', { maximumSignificantDigits: digits });
  };

  const value = (given) => {
    if (given === null || given === undefined || given === '') return missing;
    if (typeof given === 'number') return number(given);
    if (typeof given === 'boolean') return given ? '✓ yes' : '✗ no';
    return typeof given === 'string' ? given : JSON.stringify(given);
  };

  const bytes = (size) => {
    const [unit, name] = size < 1e3 ? [1, 'bytes'] : size < 1e6 ? [1e3, 'kB'] : [1e6, 'MB'];
    return `${number(Number((size / unit).toPrecision(3)))} ${name}`;
  };

  const clock = (date) => date.toLocaleTimeString('en', { hour12: false });

  // "2026-11-16T08:00:00Z" as "2026-11-16 08:00 UTC".
  const moment = (text) => String(text).replace(/^(\d{4}-\d\d-\d\d)T(\d\d:\d\d).*Z$/, '$1 $2 UTC');

  // Plotly reads a little HTML in texts, links among it, and templates %{...}: names must not be read so.
  const codes = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '%': '&#37;' };
  const plain = (text) => String(text).replace(/[&<>%]/g, (sign) => codes[sign]);

  gradslide.format = { bytes, clock, missing, moment, number, plain, value };
}
