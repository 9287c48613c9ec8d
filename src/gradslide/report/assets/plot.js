// A plot by Plotly in the page's colours and with a text alternative. Its buttons are the page's own, for keyboards.
{
  const { element } = gradslide.elements;
  const { button, row } = gradslide.controls;
  const { plain } = gradslide.format;
  const { colour, printing } = gradslide.theme;
  // A finger scrolls the page, and must not be caught by a plot.
  const touch = window.matchMedia('(pointer: coarse)').matches;

  const paper = 660; // pixels that fit on a sheet

  const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

  // A title as long as there is room for.
  const titled = ({ title, ...axis } = {}, room) => {
    const text = plain(cut(title || '', Math.floor(room / 9)));
    return { ...axis, title: { text, font: { size: 13 } } };
  };

  const themed = (layout, canvas) => {
    const axis = {
      gridcolor: colour('grid'),
      linecolor: colour('muted'),
      tickcolor: colour('muted'),
      fixedrange: touch,
    };
    return {
      margin: { l: 8, r: 8, t: 8, b: 8 },
      showlegend: false,
      dragmode: touch ? false : 'zoom',
      hovermode: 'closest',
      paper_bgcolor: 'rgba(0,0,0,0)',
      plot_bgcolor: 'rgba(0,0,0,0)',
      ...layout,
      width: printing() ? Math.min(paper, canvas.clientWidth) : undefined,
      font: { family: 'system-ui, sans-serif', size: 13, color: colour('text') },
      hoverlabel: {
        bgcolor: colour('card'),
        bordercolor: colour('muted'),
        font: { color: colour('text'), size: 13 },
        align: 'left',
      },
      xaxis: { automargin: true, zeroline: false, ...axis, ...titled(layout.xaxis, canvas.clientWidth) },
      yaxis: { automargin: true, zeroline: false, ...axis, ...titled(layout.yaxis, canvas.clientHeight) },
    };
  };

  const plot = (filename, style = '') => {
    const canvas = element('div', { class: `plot ${style}`, role: 'img' });
    const reset = button('Whole range', () =>
      Plotly.relayout(canvas, { 'xaxis.autorange': true, 'yaxis.autorange': true }),
    );
    reset.hidden = touch;
    // On paper there is no legend beside the plot: the image gets one of its own, on white.
    const save = button('Save as SVG', () =>
      Plotly.downloadImage(
        {
          data: canvas.data,
          layout: {
            ...canvas.layout,
            showlegend: canvas.data.some((trace) => trace.name),
            paper_bgcolor: colour('card'),
          },
        },
        { format: 'svg', filename, width: 900, height: 560 },
      ),
    );

    const draw = (traces, layout, text) => {
      canvas.setAttribute('aria-label', text);
      Plotly.react(canvas, traces, themed(layout, canvas), {
        displayModeBar: false,
        displaylogo: false,
        doubleClick: 'reset',
      });
    };

    // Also when a hidden document is shown.
    let width = 0;
    new ResizeObserver(() => {
      if (canvas.data && canvas.clientWidth > 0 && canvas.clientWidth !== width) Plotly.Plots.resize(canvas);
      width = canvas.clientWidth;
    }).observe(canvas);

    return { canvas, draw, buttons: row('Plot', reset, save) };
  };

  gradslide.plot = plot;
}
