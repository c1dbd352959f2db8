// Verifies parts of proofs. Returns the result of each case in words, or the error.
async (cases) => {
    const { Node, account, bytesOf, header, logHash, receipt, slot, transactionHash } = await import("/static/js/proofs.js");
    const parts = {
        slot: (root, key, nodes) => slot(root, key, nodes),
        account: (root, key, nodes) => Object.fromEntries(account(root, key, nodes).words),
        receipt: (root, key, nodes) => {
            const { words, logs } = receipt(root, parseInt(key, 16), nodes);
            return [Object.fromEntries(words), logs.map(logHash)];
        },
        transaction: (root, key, nodes) => transactionHash(root, parseInt(key, 16), nodes),
        header: (root, key) => Object.fromEntries(header(key).words),
    };
    return cases.map(([part, root, key, nodes]) => {
        try {
            const name = ["receipt", "transaction"].includes(part) ? key : bytesOf(key);
            return parts[part](root, name, nodes.map((node) => new Node(bytesOf(node))));
        } catch (error) {
            return `${error.constructor.name}: ${error.message}`;
        }
    });
}
