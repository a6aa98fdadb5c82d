// What operators of a bus do in its console; `browser.js` runs it.
"use strict";

module.exports = async function ({ Visit, flow, check, told }) {
  const desk = await (await Visit.begin("MDM")).signIn("ada");
  await flow("bus overview", async () => {
    await desk.open("/");
    await desk.sees("connected with RabbitMQ");
    await desk.page.locator(".facts div", { hasText: told.dead }).getByText("1", { exact: true }).waitFor();
    await desk.page.getByText(/1 envelopes that nobody took/).waitFor();
    await desk.looked("bus-overview");
  });
  await flow("bus envelopes", async () => {
    await desk.open("/envelopes");
    await desk.page.getByRole("row", { name: new RegExp(`create Notes.*${told.message}`) }).first().waitFor();
    await desk.looked("bus-envelopes");
    await desk.page.getByLabel("Text to look for").fill(told.code);
    await desk.press("Search");
    await desk.page.waitForURL((at) => at.searchParams.get("search") === told.code);
    check((await desk.page.getByRole("row", { name: /unreadable/ }).count()) === 1, "the search finds what could not be read");
    await desk.sees("Looked back to");
    await desk.page.getByLabel("Text to look for").fill("nothing like it");
    await desk.press("Search");
    await desk.sees("Nothing found");
    await desk.looked("bus-envelopes-none");
  });
  await flow("bus services", async () => {
    await desk.open("/services");
    await desk.page.getByRole("row", { name: /create Notes TESTING\.REQUESTS\.Notes\.create/ }).waitFor();
    await desk.sees("sftp://files.example/in");
    check(!(await desk.page.content()).includes("hidden-word"), "no password of a subscriber is shown");
    await desk.looked("bus-services");
  });
  await flow("bus audit", async () => {
    await desk.open("/audit");
    await desk.sees("signed in");
    await desk.looked("bus-audit");
  });
  await desk.end();
  const viewer = await (await Visit.begin("MDM")).signIn("vera");
  await flow("bus viewer", async () => {
    await viewer.open("/audit");
    await viewer.sees("it takes the role operator");
  });
  await viewer.end();
};
