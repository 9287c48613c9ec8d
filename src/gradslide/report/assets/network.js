// The network: agents by degree or by their distance from the mean, the latter over the iterations.
{
  const { element, folded, setText } = gradslide.elements;
  const { button, choice, row } = gradslide.controls;
  const { number, plain } = gradslide.format;
  const pause = 250; // milliseconds per frame of Play

  const median = (values) => {
    const sorted = [...values].sort((a, b) => a - b);
    return (sorted[Math.floor((sorted.length - 1) / 2)] + sorted[Math.ceil((sorted.length - 1) / 2)]) / 2;
  };

  const spread = (when, values) => {
    const [low, high] = [Math.min(...values), Math.max(...values)].map(number);
    return `${when}: distances from ${low} to ${high}, median ${number(median(values))}.`;
  };

  const edgeTrace = ({ positions, edges }) => {
    const [x, y] = [[], []];
    for (const [from, to] of edges) {
      x.push(positions[from][0], positions[to][0], null);
      y.push(positions[from][1], positions[to][1], null);
    }
    const line = { color: gradslide.theme.colour('edge'), width: edges.length > 2000 ? 0.4 : 0.8 };
    return { type: 'scatter', mode: 'lines', x, y, line, hoverinfo: 'skip' };
  };

  // Size grows with the value as colour does: it can be read without colours.
  const nodeTrace = ({ positions, degrees, names }, values, scale, title, distances) => {
    const known = degrees.map((_, agent) => plain((names || {})[agent] || ''));
    const largest = Math.min(26, Math.max(5, 190 / Math.sqrt(positions.length)));
    return {
      type: 'scatter',
      mode: names ? 'markers+text' : 'markers',
      textposition: 'top center',
      texttemplate: '%{customdata}',
      customdata: known,
      cliponaxis: false,
      x: positions.map(([x]) => x),
      y: positions.map(([, y]) => y),
      text: degrees.map(
        (degree, agent) =>
          `<b>${known[agent] || `agent ${agent}`}</b><br>degree ${degree}${distances ? `<br>distance ${number(distances[agent])}` : ''}`,
      ),
      hovertemplate: '%{text}<extra></extra>',
      marker: {
        color: values.map(scale.place),
        size: values.map((value) => largest * (0.35 + 0.65 * scale.part(value))),
        cmin: scale.from,
        cmax: scale.to,
        colorscale: 'Viridis',
        opacity: 1,
        line: { color: gradslide.theme.colour('text'), width: largest > 8 ? 0.8 : 0.3 },
        colorbar: {
          orientation: 'h',
          y: 0,
          yanchor: 'top',
          thickness: 12,
          outlinewidth: 0,
          title: { text: title, side: 'top' },
          tickvals: scale.tickvals,
          ticktext: scale.ticktext,
        },
      },
    };
  };

  const bare = { visible: false };
  const square = { xaxis: bare, yaxis: { ...bare, scaleanchor: 'x' } };

  const network = () => {
    const plot = gradslide.plot('network');
    const which = choice('Network', () => fill());
    const by = choice('Colour and size by', () => fill());
    const slider = element('input', { type: 'range', min: 0, step: 1, value: 0 });
    const at = element('span', { class: 'now' });
    const play = button('▶ Play', () => toggle());
    const said = element('p', { class: 'said' });
    const note = element('p', { class: 'remark' });
    const facts = gradslide.tables.facts();
    const values = folded('Agents as a table', gradslide.tables.table());
    const label = element('label', { class: 'control wide' }, element('span', {}, 'Outer iteration ', at), slider);
    const frames = element('div', { class: 'frames' }, label, play);
    let shown = null;
    let scale = null;
    let timer = null;
    let current = null;

    const distances = () => (current.frames && current.frames.distances.length > 0 ? current.frames.distances : null);

    // The chosen network, with its scale over all frames.
    const fill = () => {
      const before = current;
      current = shown[Number(which.value)];
      by.offer([...(distances() ? [['disagreement', 'distance from the mean']] : []), ['degree', 'degree']]);
      const byDegree = by.value === 'degree';
      scale = byDegree ? gradslide.scale.whole(current.degrees) : gradslide.scale.logarithmic(distances().flat());
      frames.hidden = !distances() || distances().length < 2;
      const last = distances() ? distances().length - 1 : 0;
      // A page opens at the last frame; who looks at that of a run that goes on wants to see the next one.
      const follow = before === null || (gradslide.live.running() && Number(slider.value) === Number(slider.max));
      slider.max = last;
      if (follow) slider.value = last;
      plot.canvas.hidden = current.positions === null;
      plot.buttons.hidden = plot.canvas.hidden;
      facts.update(current.facts);
      setText(note, current.note || '');
      draw();
    };

    const draw = () => {
      const frame = Number(slider.value);
      const here = distances() ? distances()[frame] : null;
      const byDegree = by.value === 'degree';
      const shownValues = byDegree ? current.degrees : here;
      const title = byDegree ? 'degree: neighbours of an agent' : 'distance from the mean of the agents';
      const when = here ? `iteration ${number(current.frames.iterations[frame])}` : '';
      at.textContent = here ? number(current.frames.iterations[frame]) : '';
      slider.setAttribute('aria-valuetext', when);
      const summary = here ? spread(`${current.name ? `${current.name}, at` : 'At'} ${when}`, here) : '';
      setText(said, summary);
      if (current.positions) {
        const text = `Network of ${current.positions.length} agents and ${current.edges.length} links, coloured by ${by.value}. ${summary}`;
        const nodes = nodeTrace(current, shownValues, scale, title, here);
        plot.draw([edgeTrace(current), nodes], { ...square, uirevision: which.value }, text);
      }
      values.update(() => tableOf(here, when));
    };

    const tableOf = (here, when) => ({
      title: here ? `Agents at ${when}` : 'Agents',
      columns: here ? ['agent', 'degree', 'distance from the mean'] : ['agent', 'degree'],
      rows: current.degrees.map((degree, agent) => {
        const name = (current.names || {})[agent] || agent;
        return here ? [name, degree, here[agent]] : [name, degree];
      }),
    });

    const stop = () => {
      clearInterval(timer);
      timer = null;
      play.textContent = '▶ Play';
    };

    const toggle = () => {
      if (timer !== null) {
        stop();
        return;
      }
      if (slider.value === slider.max) slider.value = 0;
      play.textContent = '❚❚ Pause';
      draw();
      timer = setInterval(() => {
        if (slider.value === slider.max) {
          stop();
        } else {
          slider.value = Number(slider.value) + 1;
          draw();
        }
      }, pause);
    };

    slider.addEventListener('input', () => draw());

    const update = (given) => {
      shown = given;
      which.offer(given.map(({ name }, index) => [index, name || `network ${index + 1}`]));
      fill();
    };

    const side = element(
      'div',
      {},
      row('Network', which.element, by.element),
      frames,
      said,
      facts.element,
      note,
      plot.buttons,
    );
    const whole = element('div', {}, element('div', { class: 'beside' }, plot.canvas, side), values.element);
    return { element: whole, update };
  };

  gradslide.network = network;
}
