// A page of a run that goes on: asks for data.json beside it until the run has finished, and says how it stands.
{
  const { setText } = gradslide.elements;
  const { clock, number } = gradslide.format;
  const [soon, later, patience] = [1000, 5000, 3]; // milliseconds between questions; failures in a row
  let running = document.documentElement.dataset.live === 'true';

  // The run at work is the last one: runs over several networks come one after another.
  const iteration = (content) => {
    const last = content.documents.at(-1);
    const curve = last && last.curves.flatMap((group) => group.curves).at(-1);
    return curve && curve.columns.iteration ? curve.columns.iteration.at(-1) : undefined;
  };

  const say = (state, progress = '') => {
    const where = document.getElementById('state');
    setText(where, state);
    setText(document.getElementById('progress'), progress);
    where.parentElement.hidden = false;
  };

  const tell = (content) => {
    const updated = `updated ${clock(new Date())}`;
    const reached = iteration(content);
    if (content.state.finished) say('ended', `, ${updated}`);
    else
      say('running', typeof reached === 'number' ? `: outer iteration ${number(reached)}, ${updated}` : `: ${updated}`);
  };

  const start = (content, update) => {
    if (!running) return;
    let tag = null;
    let failures = 0;
    let latest = content;

    const ask = async () => {
      try {
        const headers = tag === null ? {} : { 'If-None-Match': tag };
        const answer = await fetch(`data.json${window.location.search}`, { cache: 'no-store', headers });
        if (!answer.ok && answer.status !== 304) throw new Error(`status ${answer.status}`);
        const news = answer.ok ? await answer.json() : null;
        const silent = failures >= patience;
        failures = 0;
        if (news) {
          tag = answer.headers.get('ETag');
          latest = news;
          running = !news.state.finished;
          update(news);
        }
        if (news || silent) tell(latest);
      } catch {
        failures += 1;
        if (failures === patience)
          say("out of reach: the run has ended, or this page's server has; what is shown is the last state");
      }
      if (running) setTimeout(ask, failures < patience ? soon : later);
    };

    running = !content.state.finished;
    tell(content);
    if (running) setTimeout(ask, soon);
  };

  gradslide.live = { running: () => running, start };
}
