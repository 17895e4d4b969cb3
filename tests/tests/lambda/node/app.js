exports.run = async (event) => {
  if (event.name === undefined) throw new TypeError("who is it?");
  console.log("seen", event.name);
  return { greeting: `Hello ${event.name}`, pid: process.pid };
};
