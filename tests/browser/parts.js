// Verifies parts of proofs. Returns the result of each case in words, or the error.
async (cases) => {
    const { Node, account, bytesOf, header, slot } = await import("/static/js/proofs.js");
    const parts = {
        slot: (root, key, nodes) => slot(root, key, nodes),
        account: (root, key, nodes) => Object.fromEntries(account(root, key, nodes).words),
        header: (root, key) => Object.fromEntries(header(key).words),
    };
    return cases.map(([part, root, key, nodes]) => {
        try {
            return parts[part](root, bytesOf(key), nodes.map((node) => new Node(bytesOf(node))));
        } catch (error) {
            return `${error.constructor.name}: ${error.message}`;
        }
    });
}
