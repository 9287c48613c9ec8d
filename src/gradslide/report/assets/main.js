// The page: its content, its tabs, its colours, and news if the run goes on.
{
  const content = JSON.parse(document.getElementById('content').textContent);
  const tabs = gradslide.tabs(document.getElementById('documents'), document.getElementById('main'));
  gradslide.theme.start();
  tabs.update(content);
  gradslide.theme.listen(() => tabs.refresh());
  gradslide.live.start(content, (news) => tabs.update(news));
}
