// Curves: any column against any other, linear or logarithmic, with the bound beside what was measured.
{
  const { element, folded, setText } = gradslide.elements;
  const { choice, row, tick } = gradslide.controls;
  const { describe, points, remarks, table, trace } = gradslide.curveData;
  const { style, swatch } = gradslide.curveStyle;

  const pair = (axis, log) => element('div', { class: 'pair' }, axis.element, log.element);

  const legendLine = (changed) => {
    const box = element('input', { type: 'checkbox', checked: true });
    const picture = element('span', { class: 'swatch' });
    const name = element('span');
    box.addEventListener('change', changed);
    const update = (curve) => {
      picture.replaceChildren(swatch(curve.index));
      setText(name, curve.name);
    };
    return { element: element('label', { class: 'tick' }, box, picture, name), box, update };
  };

  const curves = () => {
    const plot = gradslide.plot('curves');
    const group = choice('Group', () => draw());
    const x = choice('Horizontal', () => draw(), 1);
    const y = choice('Vertical', () => chooseY(), 1);
    const logX = tick('log scale', () => draw());
    const logY = tick('log scale', () => draw());
    const bound = tick('bound', () => draw(), true);
    const legend = element('div', { class: 'legend', role: 'group', 'aria-label': 'Curves shown' });
    const lines = [];
    const remark = element('p', { class: 'remark' });
    const values = folded('Values as a table', gradslide.tables.table());
    let shown = null;

    const axisOf = (axes, chosen) => axes.find(({ key }) => key === chosen) || axes[0];

    const chooseY = () => {
      logY.box.checked = Boolean(axisOf(shown.axes.y, y.value).log);
      draw();
    };

    const updateLegend = (members) => {
      while (lines.length > members.length) lines.pop().element.remove();
      while (lines.length < members.length) {
        lines.push(legendLine(() => draw()));
        legend.append(lines.at(-1).element);
      }
      members.forEach((curve, index) => {
        lines[index].update({ index, name: curve.name || 'curve' });
        lines[index].element.hidden = curve.drawn.x.length === 0;
      });
      legend.hidden = members.length < 2;
    };

    const draw = () => {
      const [xAxis, yAxis] = [axisOf(shown.axes.x, x.value), axisOf(shown.axes.y, y.value)];
      const logs = [logX.box.checked, logY.box.checked];
      const members = shown.curves[Number(group.value)].curves.map((curve) => ({
        name: curve.name,
        drawn: points(curve.columns, xAxis.key, yAxis.key, ...logs),
        promised: points(curve.columns, xAxis.key, yAxis.bound, ...logs),
      }));
      updateLegend(members);
      const hasBound = members.some((curve) => curve.promised.x.length > 0);
      bound.element.hidden = !hasBound;
      bound.name(`bound (dotted): ${yAxis.bound_label || 'what is promised'}`);

      const traces = [];
      members.forEach((curve, index) => {
        if (!lines[index].box.checked || curve.drawn.x.length === 0) return;
        const { colour, dash, marker } = style(index);
        const name = curve.name || yAxis.label;
        traces.push(
          trace(name, curve.drawn, xAxis, yAxis.label, {
            mode: 'lines+markers',
            line: { color: colour, dash: dash[0], width: 2 },
            marker: { color: colour, symbol: marker[0], size: 8, maxdisplayed: 14 },
          }),
        );
        if (bound.box.checked && curve.promised.x.length > 0) {
          traces.push(
            trace(`${name}, bound`, curve.promised, xAxis, yAxis.bound_label || 'bound', {
              mode: 'lines',
              line: { color: colour, dash: 'dot', width: 1.2 },
              meta: 'bound',
            }),
          );
        }
      });
      // Plotly writes powers of ten larger than other numbers.
      const span = (label, log) => ({
        title: label,
        type: log ? 'log' : 'linear',
        exponentformat: 'power',
        tickfont: { size: log ? 10 : 12.5 },
      });
      plot.draw(
        traces,
        {
          xaxis: span(xAxis.label, logs[0]),
          yaxis: span(yAxis.label, logs[1]),
          uirevision: [group.value, xAxis.key, yAxis.key, ...logs].join(),
        },
        describe(members, xAxis, yAxis),
      );
      setText(remark, remarks(members, xAxis, yAxis));
      values.update(() => table(members, xAxis, yAxis));
    };

    const update = ([given]) => {
      const first = shown === null;
      shown = given;
      group.offer(given.curves.map(({ name }, index) => [index, name || `group ${index + 1}`]));
      x.offer(given.axes.x.map(({ key, label }) => [key, label]));
      y.offer(given.axes.y.map(({ key, label }) => [key, label]));
      if (first) chooseY();
      else draw();
    };

    const controls = row('Axes', group.element, pair(x, logX), pair(y, logY));
    const below = element('div', { class: 'below' }, bound.element, plot.buttons);
    return { element: element('div', {}, controls, plot.canvas, legend, below, remark, values.element), update };
  };

  gradslide.curves = curves;
}
