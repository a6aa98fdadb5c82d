// What operators of capacity do in its console; `browser.js` runs it.
"use strict";

module.exports = async function ({ Visit, flow, check, told }) {
  const desk = await (await Visit.begin("CMM-1")).signIn("ada");
  await flow("capacity publishes", async () => {
    await desk.open("/publish");
    await desk.page.getByLabel("Or its content").fill("nothing");
    await desk.press("Publish");
    await desk.page.getByRole("alert").waitFor();
    await desk.page.getByLabel("Or its content").fill(told.capacity);
    await desk.looked("capacity-publish");
    await desk.press("Publish");
    await desk.sees("values taken");
  });
  await flow("capacity chart", async () => {
    await desk.open("/?border=DE-DK");
    await desk.page.locator(".chart canvas").first().waitFor();
    await desk.page.getByText("Values").click();
    await desk.page.getByRole("cell", { name: "1\u202f000" }).first().waitFor();
    await desk.looked("capacity-available");
  });
  await flow("capacity allocates on behalf", async () => {
    await desk.open("/on-behalf");
    await desk.page.getByLabel("Balancing group").selectOption(told.group);
    await desk.page.getByLabel("Out area").selectOption(told.areas[0]);
    await desk.page.getByLabel("In area").selectOption(told.areas[1]);
    await desk.page.getByLabel("Start of the first period, UTC").fill(told.start);
    await desk.page.getByLabel("kW in each period").fill("250");
    await desk.press("Allocate");
    await desk.sees("allocated");
    await desk.looked("capacity-on-behalf");
  });
  await flow("capacity halts and resumes", async () => {
    await desk.open("/?border=DE-DK");
    await desk.page.getByRole("link", { name: /^Halt/ }).first().click();
    await desk.page.getByLabel("Reason").fill("works on the cable");
    await desk.page.getByLabel("Type DE-DK to confirm").fill("DE-FR");
    await desk.press("Halt allocation");
    await desk.page.getByRole("alert").waitFor();
    await desk.looked("capacity-halt");
    await desk.page.getByLabel("Type DE-DK to confirm").fill("DE-DK");
    await desk.press("Halt allocation");
    await desk.sees("is halted");
    await desk.page.getByText("HALT", { exact: true }).waitFor();
    await desk.page.getByRole("link", { name: /^Resume/ }).first().click();
    await desk.press("Resume allocation");
    await desk.sees("goes on");
  });
  await flow("capacity events", async () => {
    await desk.open("/events");
    await desk.page.getByRole("cell", { name: "ON_BEHALF" }).waitFor();
    await desk.page.getByRole("link", { name: "Older" }).click();
    await desk.page.getByRole("cell", { name: "PUBLISH" }).first().waitFor();
    await desk.looked("capacity-events");
  });
  await flow("capacity users", async () => {
    await desk.open("/users");
    await desk.page.getByRole("row", { name: /^u10/ }).waitFor();
    await desk.looked("capacity-users");
  });
  await flow("capacity audit", async () => {
    await desk.open("/audit");
    await desk.sees("works on the cable");
    await desk.sees("ada (console)");
  });
  await desk.end();

  const viewer = await (await Visit.begin("CMM-1")).signIn("vera");
  await flow("capacity viewer", async () => {
    await viewer.open("/?border=DE-DK");
    check((await viewer.page.getByRole("link", { name: /^Halt/ }).count()) === 0, "no halt");
    check((await viewer.page.getByRole("link", { name: "Publish" }).count()) === 0, "no publish");
    await viewer.open("/borders/DE-DK/all");
    await viewer.sees("it takes the role operator");
    await viewer.page.setViewportSize({ width: 420, height: 900 });
    await viewer.open("/?border=DE-DK");
    await viewer.page.locator(".chart canvas").first().waitFor();
    const wide = await viewer.page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    check(wide <= 0, `the page is ${wide} pixels too wide`);
  });
  await viewer.end();
};
