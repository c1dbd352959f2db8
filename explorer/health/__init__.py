"""What a monitor asks: is this service able to work?"""
