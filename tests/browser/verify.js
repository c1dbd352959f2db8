// Verifies bundles in a batch's page. Returns each outcome by its name: what is proven, or the error.
async ([batch, request, documents, only]) => {
    const { read, requireAsked, verify } = await import("/static/js/bundles.js");
    const outcomes = {};
    for (const [name, text] of Object.entries(documents)) {
        try {
            const bundle = read(text, only);
            const { queries, hashes } = await verify(bundle);
            const unshown = requireAsked(bundle, queries, batch, request);
            const told = queries.map((one) => ({
                ...one, facts: Object.fromEntries(one.facts), slots: Object.fromEntries(one.slots),
                logs: Object.fromEntries(one.logs),
            }));
            const numbers = Object.values(unshown).map((each) => each.map(({ number }) => number));
            outcomes[name] = { queries: told, hashes: Object.fromEntries(hashes), unshown: numbers };
        } catch (error) {
            outcomes[name] = `${error.constructor.name}: ${error.message}`;
        }
    }
    return outcomes;
}
