// A scale from values to colours and sizes that stays the same over all frames.
{
  const { number } = gradslide.format;

  const evenly = (marks, most) => {
    const step = Math.ceil(marks.length / most);
    return marks.filter((_, index) => index % step === 0);
  };

  const limits = (values) =>
    values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);

  // Marks between low and high at 1, or else 1, 2 and 5, times powers of ten.
  const decades = (low, high) => {
    const marks = (digits) => {
      const made = [];
      for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
        for (const digit of digits) made.push(Number(`${digit}e${power}`));
      }
      return made.filter((mark) => mark >= low && mark <= high);
    };
    const tens = marks([1]);
    const made = tens.length > 1 ? tens : marks([1, 2, 5]);
    return made.length > 1 ? made : [low, high];
  };

  // Where all values are the same, or none is positive, there is still a scale.
  const logarithmic = (values) => {
    const positive = values.filter((value) => value > 0);
    const [low, high] = positive.length > 0 ? limits(positive) : [0.1, 1];
    const place = (value) => Math.log10(Math.max(value, low));
    return finish(low, high, place, decades(low, high));
  };

  const whole = (values) => {
    const [low, high] = values.length > 0 ? limits(values) : [0, 1];
    const marks = Array.from({ length: Math.min(high - low + 1, 1000) }, (_, index) => low + index);
    return finish(low, high, (value) => value, marks);
  };

  const finish = (low, high, place, marks) => {
    const [from, to] = [place(low), place(high)];
    const wide = to - from || 1;
    const ticks = evenly(marks, 6);
    return {
      from,
      to: from + wide,
      place,
      part: (value) => (place(value) - from) / wide,
      tickvals: ticks.map(place),
      ticktext: ticks.map((tick) => number(tick)),
    };
  };

  gradslide.scale = { logarithmic, whole };
}
