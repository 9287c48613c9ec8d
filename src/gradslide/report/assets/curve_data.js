// Curves as data: the points that can be drawn, and the same in words and as a table.
{
  const { number, plain } = gradslide.format;
  const listed = 40; // rows per curve in the table of values

  const isNumber = (value) => typeof value === 'number';

  // The points of two columns that can be drawn, and how many cannot for their sign on a logarithmic axis.
  const points = (columns, xKey, yKey, logX, logY) => {
    const [xs, ys] = [columns[xKey] || [], columns[yKey] || []];
    const made = { x: [], y: [], dropped: 0 };
    xs.forEach((x, index) => {
      const y = ys[index];
      if (!isNumber(x) || !isNumber(y)) return;
      if ((logX && x <= 0) || (logY && y <= 0)) {
        made.dropped += 1;
        return;
      }
      made.x.push(x);
      made.y.push(y);
    });
    return made;
  };

  const trace = (name, drawn, xAxis, label, look) => ({
    type: 'scatter',
    name: plain(name),
    x: drawn.x,
    y: drawn.y,
    text: drawn.x.map(
      (x, index) =>
        `<b>${plain(name)}</b><br>${plain(xAxis.label)}: ${number(x)}<br>${plain(label)}: ${number(drawn.y[index])}`,
    ),
    hovertemplate: '%{text}<extra></extra>',
    ...look,
  });

  // Evenly chosen rows, the last among them.
  const some = (drawn) => {
    const step = Math.max(1, Math.ceil(drawn.x.length / listed));
    return drawn.x
      .map((x, index) => [x, drawn.y[index]])
      .filter((_, index) => index % step === 0 || index === drawn.x.length - 1);
  };

  const describe = (members, xAxis, yAxis) => {
    const each = members
      .filter((curve) => curve.drawn.x.length > 0)
      .map(({ name, drawn }) => `${name || 'curve'} from ${number(drawn.y[0])} to ${number(drawn.y.at(-1))}`);
    return `Curves of ${yAxis.label} against ${xAxis.label}: ${each.join('; ') || 'nothing to draw'}.`;
  };

  const remarks = (members, xAxis, yAxis) => {
    const absent = members.filter((curve) => curve.drawn.x.length + curve.drawn.dropped === 0);
    const dropped = members.reduce((sum, curve) => sum + curve.drawn.dropped, 0);
    const said = [];
    if (absent.length > 0) {
      const names = absent.map(({ name }) => name || 'curve').join(', ');
      said.push(`Left out, as there is no ${yAxis.label} against ${xAxis.label}: ${names}.`);
    }
    if (dropped > 0) said.push(`${number(dropped)} points that are not positive have no place on a log axis.`);
    return said.join(' ');
  };

  const table = (members, xAxis, yAxis) => {
    const bounded = members.some(({ promised }) => promised.x.length > 0);
    const rows = members.flatMap(({ name, drawn, promised }) => {
      const bounds = new Map(promised.x.map((place, index) => [place, promised.y[index]]));
      return some(drawn).map(([x, y]) => [name || 'curve', x, y, ...(bounded ? [bounds.get(x) ?? null] : [])]);
    });
    return {
      title: `${yAxis.label} against ${xAxis.label}`,
      columns: ['curve', xAxis.label, yAxis.label, ...(bounded ? [yAxis.bound_label || 'bound'] : [])],
      rows,
      notes: [`At most ${listed + 1} rows per curve; all values are in the downloads.`],
    };
  };

  gradslide.curveData = { describe, points, remarks, table, trace };
}
