// How curves differ: by colour (Okabe and Ito's, which colour-blind readers can tell apart), by dash and by marker.
{
  const colours = {
    light: ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#000000', '#56b4e9', '#e69f00'],
    dark: ['#56b4e9', '#e69f00', '#00b386', '#cc79a7', '#ffffff', '#f0e442', '#d55e00'],
  };
  const dashes = [
    ['solid', null],
    ['dash', '7 4'],
    ['dashdot', '7 3 2 3'],
    ['longdash', '11 4'],
    ['longdashdot', '11 3 2 3'],
  ];
  const markers = [
    ['circle', 'M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0'],
    ['square', 'M-4-4h8v8h-8z'],
    ['diamond', 'M0-5L5 0L0 5L-5 0z'],
    ['triangle-up', 'M0-5L5 4H-5z'],
    ['triangle-down', 'M0 5L5-4H-5z'],
    ['cross', 'M-1.5-5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z'],
    ['hourglass', 'M-4-5h8L-4 5h8z'],
  ];

  const style = (index) => {
    const palette = colours[gradslide.theme.name()];
    return {
      colour: palette[index % palette.length],
      dash: dashes[index % dashes.length],
      marker: markers[(index + Math.floor(index / palette.length)) % markers.length],
    };
  };

  const svg = (tag, attributes, ...children) => {
    const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [name, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };

  // A piece of the curve, for the legend.
  const swatch = (index) => {
    const { colour, dash, marker } = style(index);
    return svg(
      'svg',
      { viewBox: '-18 -7 36 14', width: 36, height: 14, 'aria-hidden': 'true' },
      svg('path', { d: 'M-18 0H18', stroke: colour, 'stroke-width': 2, 'stroke-dasharray': dash[1] }),
      svg('path', { d: marker[1], fill: colour }),
    );
  };

  gradslide.curveStyle = { style, swatch };
}
