// Costs per agent: bars by agent or by size, or how often each cost occurs.
{
  const { element, folded, notes, setText } = gradslide.elements;
  const { choice, row } = gradslide.controls;
  const { number, plain } = gradslide.format;

  const many = 150; // so many bars are thinner than the gaps that would be between them

  const sorted = (values) => [...values].sort((a, b) => b - a);
  const numbers = (values) => values.filter((value) => typeof value === 'number');

  const agents = () => {
    const plot = gradslide.plot('costs', 'low');
    const which = choice('Run', () => fill());
    const column = choice('Cost', () => draw(), 1);
    const order = choice('Order', () => draw(), 1);
    const said = element('p', { class: 'said' });
    const below = notes();
    const values = folded('Costs as a table', gradslide.tables.table());
    let shown = null;
    let current = null;
    order.offer([
      ['agent', 'by agent'],
      ['size', 'largest first'],
      ['count', 'how many agents'],
    ]);

    const names = () => current.columns.agent || current.columns[column.value].map((_, index) => index);

    const fill = () => {
      const first = current === null;
      current = shown[Number(which.value)];
      const keys = Object.keys(current.columns).filter((key) => key !== 'agent');
      column.offer(keys.map((key) => [key, key]));
      // The first cost in which agents differ says most.
      if (first) column.value = keys.find((key) => new Set(current.columns[key]).size > 1) || keys[0];
      if (first) order.value = current.columns[column.value].length > many ? 'size' : 'agent';
      below.update(current.notes || []);
      draw();
    };

    const bars = (key) => {
      const costs = current.columns[key];
      const pairs = names()
        .map((agent, index) => [agent, costs[index]])
        .filter(([, cost]) => typeof cost === 'number');
      const bySize = order.value === 'size';
      if (bySize) pairs.sort((a, b) => b[1] - a[1]);
      return {
        type: 'bar',
        x: pairs.map(([agent], index) => (bySize ? index + 1 : agent)),
        y: pairs.map(([, cost]) => cost),
        text: pairs.map(([agent, cost]) => `<b>agent ${plain(agent)}</b><br>${plain(key)}: ${number(cost)}`),
        textposition: 'none',
        hovertemplate: '%{text}<extra></extra>',
      };
    };

    const counts = (key) => ({
      type: 'histogram',
      x: numbers(current.columns[key]),
      hovertemplate: `${plain(key)}: %{x}<br>agents: %{y}<extra></extra>`,
      marker: { line: { color: gradslide.theme.colour('card'), width: 1 } },
    });

    const spread = (key, costs) => {
      const [least, middle, most] = [costs.at(-1), costs[Math.floor(costs.length / 2)], costs[0]].map(number);
      const sum = number(costs.reduce((total, cost) => total + cost, 0));
      const run = current.name ? `${current.name}: ` : '';
      return `${run}${key} per agent: least ${least}, median ${middle}, most ${most}; all together ${sum}.`;
    };

    const draw = () => {
      const key = column.value;
      const costs = sorted(numbers(current.columns[key]));
      const summary = costs.length > 0 ? spread(key, costs) : `There are no ${key}.`;
      setText(said, summary);
      const trace = order.value === 'count' ? counts(key) : bars(key);
      trace.marker = { color: gradslide.curveStyle.style(0).colour, ...trace.marker };
      const titles = { agent: ['agent', key], size: ['agents, largest first', key], count: [key, 'agents'] }[
        order.value
      ];
      plot.draw(
        [trace],
        {
          bargap: order.value === 'count' || costs.length > many ? 0 : 0.15,
          xaxis: { title: titles[0] },
          yaxis: { title: titles[1], rangemode: 'tozero' },
          uirevision: [which.value, key, order.value].join(),
        },
        `Bars. ${summary}`,
      );
      values.update(() => tableOf());
    };

    const tableOf = () => {
      const keys = Object.keys(current.columns);
      return {
        title: 'Costs per agent',
        columns: keys,
        rows: (current.columns[keys[0]] || []).map((_, index) => keys.map((key) => current.columns[key][index])),
      };
    };

    const update = (given) => {
      shown = given;
      which.offer(given.map(({ name }, index) => [index, name || `run ${index + 1}`]));
      fill();
    };

    const controls = row('Costs', which.element, column.element, order.element);
    const whole = element('div', {}, controls, plot.canvas, said, below.element, plot.buttons, values.element);
    return { element: whole, update };
  };

  gradslide.agents = agents;
}
