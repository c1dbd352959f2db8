from batch_query_client.command_line import main

if __name__ == "__main__":
    main()
